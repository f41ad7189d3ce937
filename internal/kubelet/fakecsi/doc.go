// Package fakecsi is a CSI driver as tests want it: it serves the interface at real sockets, and bind-mounts
// directories as its volumes, but its calls can be made to fail, and are noted. It is for tests only.
package fakecsi
