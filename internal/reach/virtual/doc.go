// Package virtual holds addresses that move between machines: it gives them to a link, and
// tells the network where they are now (package announce). Who holds them is decided
// elsewhere, by a lease; this package does what the one who holds it has to do.
//
// An address that is held has a lifetime in the kernel: it goes by itself when the process
// that holds it is killed. Until then its machine may still answer for it, which is why the
// new holder keeps telling everybody.
//
// Start at [Address].
package virtual
