// Package cloudmanager is a cloud controller manager: the loops of a cloud (controllers/cloud)
// as a process of their own, over a kubeconfig file or the account of a pod, elected by a
// lease if there are several. The loops inside a server need none of it.
//
// Start at [Run]. Flags are upstream's, and the same for kemudi cloud-controller-manager and for the
// programs that vendors make (package cloud of this module).
package cloudmanager
