from wicketgate.__main__ import main

main()
