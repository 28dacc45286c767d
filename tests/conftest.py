"""What all tests start from."""

import signal

# Whoever started the tests may ignore it, as nohup does, and every process they start would too.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
