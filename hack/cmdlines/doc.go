// Package cmdlines watches the arguments of all processes of this machine, for tests that look for secrets in them.
//
//	/proc/PID/cmdline, again and again -> Watch -> every command line that was seen, once
package cmdlines
