package storage

import (
	"crypto/sha256"
	"encoding/hex"
)

// AttachmentName is the name of the VolumeAttachment of a volume of a driver
// to a node: who asks for the attachment and the node that waits for it come to
// the same name without a search.
func AttachmentName(handle, driver, node string) string {
	sum := sha256.Sum256([]byte(handle + driver + node))
	return "csi-" + hex.EncodeToString(sum[:])
}

// ManagedAnnotation is of nodes that attach no volumes themselves: the control plane does it for them, and for none
// that does not say so.
const ManagedAnnotation = "volumes.kubernetes.io/controller-managed-attach-detach"
