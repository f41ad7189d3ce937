// Package baremetal is a cloud of machines that somebody owns: an inventory file says which
// there are, programs of the owner's (hooks) know how to look after power and routes, and
// balancers have addresses of a pool, which the nodes' own service proxy answers for once packets for
// them arrive.
//
// Start at baremetal.go; inventory.go has what the file says, hook.go how programs are called.
package baremetal
