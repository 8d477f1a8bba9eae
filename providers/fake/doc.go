// Package fake is the provider of machines that exist only in the memory of a process: for
// demonstrations, and for tests of what runs on machines. It keeps every promise of the capability
// interfaces while the process lives, and says that it is simulated.
//
// A script is not run. One whose first line is "#fake" says line by line what running it shows:
//
//	count          counts one run (Provider.Runs)
//	stdout "text"  writes a Go string to standard output; stderr likewise
//	wait           waits for Provider.Release, then writes "late"
//	hang           goes on until its timeout
//	flood 1000     writes so many bytes to standard output
//	join OP REF    joins a cluster by the join file of an operation, and ends
//	exit 3         ends with this status; 0 at the end of the script
package fake
