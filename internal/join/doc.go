// Package join is how a machine gets into a cluster, and who it is there.
//
// A [Token] lets it in. [Discover] finds out which cluster a server is of, without
// giving anything away. An [Identity] is the machine's: keys that were made on it
// and never leave it, and the certificates that the cluster has signed for them. Its
// name is only what the key is called: a machine whose addresses change stays who it
// is, and another that has its name, or a copy of its disk, is refused.
//
// What the server does about it is elsewhere: approving and signing in
// internal/controllers/certificates, believing in internal/auth/authn.
//
// Invariants, cited by number in the code:
//
//	I1 Nothing of a token is sent but to a server that the cluster's authority vouches for.
//	I2 Each step of joining is one file, written whole: the next start goes on from
//	   whatever steps were made, with the same key.
//	I3 A key is made once. Certificates come and go; all are for that key.
package join
