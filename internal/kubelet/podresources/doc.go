// Package podresources tells monitors on the node which pods have which devices, processors and memory: the
// PodResourcesLister of a kubelet, at a socket that only root reaches.
package podresources
