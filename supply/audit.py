"""``python -m supply.audit``: are there known vulnerabilities in what the lock files install?

pip-audit exits with 0 where it can read no advisory. So it is asked first about a package that has one, and about each
package whether it was looked up. Exit codes: 0 none known, 1 some, 3 no advisory data could be read.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LOCKS = sorted((Path(__file__).resolve().parent.parent / "requirements").glob("*.lock"))
CANARY = "jinja2==2.10"
"""It has several, CVE-2019-10906 among them."""
LONGEST_S = 300


def audited(requirements: Path) -> list[dict[str, Any]]:
    """Returns the entry of each package in the report of pip-audit; empty if there is no report."""
    command = [str(Path(sys.executable).with_name("pip-audit")), "--requirement", str(requirements), "--no-deps"]
    command += ["--disable-pip", "--progress-spinner", "off", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        return []
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        canary = Path(folder, "canary.txt")
        canary.write_text(CANARY)
        if not any(each.get("vulns") for each in audited(canary)):
            print(f"NOT AUDITED: no advisory data could be read (nothing is said of {CANARY}, which has some)")
            sys.exit(3)
    faults = 0
    for lock in LOCKS:
        found = audited(lock)
        skipped = [each["name"] for each in found if "skip_reason" in each]
        known = [(each["name"], each["version"], vuln["id"]) for each in found for vuln in each.get("vulns", ())]
        faults += len(known) + len(skipped) + (not found)
        print(f"{lock.name}: {len(found)} packages, {len(known)} known vulnerabilities, {len(skipped)} not looked up")
        for name, version, vulnerability in known:
            print(f"  {name} {version}: {vulnerability}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
