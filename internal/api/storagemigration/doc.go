// Package storagemigration declares the kinds of storagemigration.k8s.io: requests to
// write all objects of a resource anew. Who does it is not here:
// internal/controllers/storagemigration.
package storagemigration
