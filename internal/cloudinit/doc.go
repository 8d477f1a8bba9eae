// Package cloudinit writes the user-data of a node's first boot: who may log
// in, under which host key the node answers, and the agent with its one-time
// token.
//
// MAAS installs its hardware sync through vendor-data, as cloud-config
// `write_files` and `runcmd`. cloud-init drops those lists of vendor-data when
// user-data has lists of the same name: it merges vendor-data into user-data
// with the mergers that vendor-data names, and MAAS names none; a `merge_how`
// in user-data works only between the parts of user-data (run with cloud-init
// 22.4.2; research maas, fact 3). So nothing here uses those two keys: the
// installer of deploy/agent travels with its files in a script part of its own,
// and a site's bundle that uses those keys is refused.
package cloudinit
