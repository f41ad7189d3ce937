// Package cgroup makes and removes the cgroups that pods live in, in both
// versions of the kernel's interface. Those of containers are the runtime's.
package cgroup
