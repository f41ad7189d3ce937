// Package storage declares the resources of the API group storage.k8s.io: classes of
// storage and what CSI drivers, nodes and attachments tell about themselves, one file a kind.
package storage
