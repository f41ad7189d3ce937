// Package runtime pins the programs that travel inside kemudi: it imports them,
// so that this module's go.mod and go.sum hold their versions and nothing else
// decides them. build.sh builds and packs them into internal/container/embedded.
//
// What lives here: the shim's main function, pause, and the packer. Nothing in
// the product imports this module.
package runtime
