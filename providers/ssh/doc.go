// Package ssh runs bounded commands on nodes over SSH (providers.SSHRunner).
// It serves bootstrap, break-glass and the steps of runs; daily work on a node
// goes through its agent.
//
// A caller can rely on these points:
//
//   - The host key is pinned. Only algorithms of the pinned key are negotiated,
//     so a server that also has a host certificate still proves the pinned key,
//     and a server with another key is refused before any credential is sent.
//   - Every step has a deadline: connecting, the handshake, the command itself
//     (by timeout(1) on the node, which ends the remote processes; closing the
//     connection alone does not end them), and the connection (keepalive).
//   - A non-zero exit status is a result, not an error: see SSHResult.ExitCode.
//   - A connection lost after the command was sent is KindUncertain, and KindBusy for
//     Exec and Stop, which may be repeated.
//   - With an operation id, the command runs at most once per node and its
//     result can be read again: see op.go.
//   - A script of a run (Runner.Exec) is an operation whose output is read while it
//     runs, by a second session, from any offset: see exec.go and follow.sh.
//   - A node may be behind a jump host. Both host keys are pinned, and the jump
//     host sees only the encrypted connection.
//
// The node needs a POSIX login shell and GNU coreutils; operation ids also need
// /proc. Words of a command are visible in the node's process list: hand a
// secret over on standard input.
package ssh
