// Package clienttest is the suite that every client.Transport must pass: what
// package client promises to its callers holds whether the API is in the same
// process or behind HTTPS. It knows no implementation. Start at [Run].
//
// Beside it stands [Filled], a transport for tests of what follows caches.
package clienttest
