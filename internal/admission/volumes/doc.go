// Package volumes is the plugins DefaultStorageClass, StorageObjectInUseProtection
// and PersistentVolumeClaimResize: what claims and volumes get when they are made, and
// which claims may grow.
package volumes
