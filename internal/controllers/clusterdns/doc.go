// Package clusterdns publishes the DNS that every node of this program serves: as the
// service kube-dns, and in slices that hold the nodes' addresses, packed. Clients are sent
// to that of their own node first.
//
// With them it makes the config map coredns, which says what these servers do.
//
// A service of that name with a selector is other people's DNS, and left alone.
package clusterdns
