// Package container is the container layer: it runs containerd inside this
// process, unpacks the programs containerd needs (they travel inside kemudi),
// and reaches it, or any other runtime, through CRI alone.
//
// What lives here: the embedded runtime and its whole configuration, the CRI
// connection in process and over a socket, images for people (import, list,
// remove), and the undoing of all of it on the host. What must not: anything
// about pods as API objects, volumes, or networks beyond where CNI looks for
// its configuration.
//
//	data directory                      run directory (gone after a reboot)
//	  bin/         unpacked programs      containerd.sock[.ttrpc]  containerd's API and CRI
//	  containerd/  images, snapshots      containerd/              bundles, mounts, netns
//	    kemudi.lock                         tmp/                   mounts that last for one call
//	                                        registries/            links to where hosts.toml of each is
//	  cni/results/ networks of pods       runc/                    runc's state
//	                                      s/                       shim sockets
//
// Invariants:
//
//	I1. One process at a time owns a data directory: it holds an exclusive lock
//	    on containerd/kemudi.lock, which the kernel drops when the process dies.
//	I2. Ending the process, in order or by kill -9, ends no container: each pod
//	    is with a shim that is nobody's child, and the next start finds it again.
//	I3. A program in bin/ is never written to in place: a new version replaces
//	    it by rename, so that a running shim keeps the file it was started from.
//	I4. An image name appears only once its content is complete, verified and
//	    unpacked; an import that fails leaves nothing behind.
//	I5. Up to 16 pods share a shim, of those that one process has started. What
//	    becomes of one of them holds up none of the others.
package container
