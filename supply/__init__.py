"""What the program is made of: ``make sbom`` (bill of materials, licences), ``make audit`` (known vulnerabilities)."""
