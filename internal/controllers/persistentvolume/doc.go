// Package persistentvolume binds claims to volumes, notices when one of them is
// lost, and says what becomes of volumes that their claims have left.
//
// A binding is two references: that of the volume to its claim, with the claim's
// UID, and that of the claim to its volume. The first decides: whoever wrote it has
// the volume. Each is written with the revision that was read, and what a crash leaves
// half done the next look at the claim completes.
//
// Volumes are made by provisioners; here a claim is only told whose turn it is. Claims of classes that wait for a pod are bound by the scheduler,
// which reserves a volume or names the node for which one is to be made.
//
// Start at [New]. claim.go and volume.go are the two halves; bind.go writes; recycle.go has volumes emptied.
package persistentvolume
