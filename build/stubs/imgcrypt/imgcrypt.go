// Package imgcrypt stands in for the decryption of image layers, which takes
// programs beside containerd that Kemudi does not have. An encrypted layer is
// one whose form is not known.
package imgcrypt

// Payload is what such a program would be given.
type Payload struct{}
