// Package image makes sure that a container's image is on the node before the
// container starts: pull policy, credentials, back-off and the events that tell
// about them. Start at [Puller.Ensure].
//
// A pod gets an image that another one has had pulled only if it could pull it, too:
// [Records] and [Verification].
//
// Images that nobody uses go when the disk is full: [Collector]. Credentials come
// from pull secrets, from files of the node ([NodeKeyring]) and from programs that
// its operator names ([Providers]).
//
// What lives here asks the runtime and nothing else. When to make sure of an image
// is decided by the pod step.
package image
