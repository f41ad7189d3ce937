package cri

import (
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// HasOwnUsers reports whether the pod asks for users other than the node's.
func HasOwnUsers(pod *v1.Pod) bool { return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers }

// Users are the IDs of users, and the same of groups, that a pod with users of
// its own has on the node: its IDs from 0 up are First and the following. Nil
// Users are the node's.
type Users struct{ First, Count uint32 }

// Sandbox gives a sandbox these users.
func (u *Users) Sandbox(c *runtimeapi.PodSandboxConfig) {
	if u != nil {
		c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = u.namespace()
	}
}

// Container gives a container these users. What it mounts belongs to them as it
// belongs to the node's users outside, without a change on disk.
func (u *Users) Container(c *runtimeapi.ContainerConfig) {
	if u == nil {
		return
	}
	c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = u.namespace()
	for _, m := range c.Mounts {
		m.UidMappings, m.GidMappings = u.mapping(), u.mapping()
	}
}

func (u *Users) namespace() *runtimeapi.UserNamespace {
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: u.mapping(), Gids: u.mapping()}
}

func (u *Users) mapping() []*runtimeapi.IDMapping {
	return []*runtimeapi.IDMapping{{HostId: u.First, ContainerId: 0, Length: u.Count}}
}
