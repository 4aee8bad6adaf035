"""The packages that we ship: ``make sbom`` (bill of materials, licences), ``make audit`` (known vulnerabilities)."""
