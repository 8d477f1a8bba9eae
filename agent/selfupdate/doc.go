// Package selfupdate is the handler of agent.update. An update is a manifest,
// signed with a key that is kept offline and whose public half is in the agent's
// configuration, and a program that fits it.
//
// The program lies in one of two directories, a and b, and the link "current"
// names the one that is started. An update fills the other one, moves the link
// and ends the process. The new version is on trial: when its heartbeat is
// accepted within a minute it stays, otherwise the link goes back and the process
// ends once more. A version that cannot even start is noticed by the guard script
// of deploy/agent, which counts starts in the same trial file.
package selfupdate
