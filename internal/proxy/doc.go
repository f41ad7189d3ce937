// Package proxy is the service proxy of a node: it makes the kernel forward
// connections that are made to the addresses of Services, and to host ports, to
// the pods behind them. Packets never pass through this process, and the rules
// stay in force while it does not run.
//
// Three parts, which know of each other in this order only:
//
//	model     pure: Services, EndpointSlices, Pods and the Node go in, and what
//	          is to be changed in the rules comes out. compile.go has the decisions.
//	kernel    brings changes to the kernel's nftables, each set of changes in one
//	          transaction, and drops connection tracking entries gone stale.
//	Proxy     feeds the model from the caches, calls the kernel, serves health checks.
//
// The rules live in the tables "ip kemudi" and "ip6 kemudi" and look like this;
// no packet mark is used, and only the first packet of a connection sees them:
//
//	prerouting, output -> services
//	services:     (destination . protocol . port) in @service-picks -> N, in @picks -> pick-N, reject or drop
//	              (destination . protocol . port) in @service-ips   -> verdict
//	              destination in @cluster-ips                       -> reject
//	              destination is local, (protocol . port) in @service-nodeports -> verdict
//	              ... in @hostport-ips, @hostports                  -> DNAT to the pod
//	pick-N:       DNAT to @service-endpoints[destination . protocol . port . random below N]
//	verdict:      reject | drop |
//	              cluster/...  pick from all endpoints of a service port that is more than a plain cluster IP
//	              local/...    pick from those on this node
//	              external/... tell clients outside the cluster from others
//	              firewall/... check the source ranges
//	postrouting:  what was DNATed is looked up again by its original destination
//	              and masqueraded if the way back would otherwise miss this node
//
// A plain cluster IP thus costs three lookups however many services there are, and
// has no chain of its own; a change of its endpoints changes a few set elements.
//
// Invariants, cited by number in the code:
//
//	P1 Only our own tables are ever written to.
//	P2 Every change of the rules is one transaction: no packet sees half of it.
//	P3 After every commit the kernel holds exactly what Model describes, whatever was there before.
//	P4 A service's fragment depends on that service, its slices and the node only.
package proxy
