import sys

try:
    from app.cli import main
except KeyboardInterrupt:  # the imports take a moment, and a command catches it only when it has begun
    sys.exit(130)

main()
