// Package image makes sure that a container's image is on the node before the
// container starts: pull policy, credentials, back-off and the events that tell
// about them. Start at [Puller.Ensure].
//
// What lives here asks the runtime's image service and nothing else. When to ask
// is decided by the pod step; removing images that nobody uses is not done here.
package image
