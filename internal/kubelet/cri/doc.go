// Package cri turns a pod into what the container runtime is asked for, and
// what the runtime reports back into what the pod step looks at.
//
// Here live names, labels and annotations of sandboxes and containers, their
// environment, DNS, hosts file, resources and security settings: pure functions
// of the pod and of facts about the node. Calling the runtime, and making the
// files and mounts that are named here, is the business of package kubelet.
package cri
