// Package proxy is the service proxy of a node: it makes the kernel forward
// connections that are made to the addresses of Services, and to host ports, to
// the pods behind them. Packets never pass through this process, and the rules
// stay in force while it does not run, but for node ports
// at ::1 (loopback.go) and Config.Userspace: connections of TCP are then led to package
// userspace (capture.go).
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
//	services:     (destination . protocol . port) in @service-ips -> action
//	              destination in @cluster-ips                     -> reject
//	              destination in @other-ips                       -> left to whoever proxies it
//	              destination is local, (protocol . port) in @service-nodeports -> action
//	              ... in @hostport-ips, @hostports                -> DNAT to the pod
//	postrouting:  what was DNATed is looked up again by its original destination
//	              and masqueraded if the way back would otherwise miss this node
//	forward:      what connection tracking calls invalid is dropped
//
// An action is a number, and @actions says in which chain it goes on. Those chains are
// the same for all services; way.go has them:
//
//	pick-N           DNAT to @service-endpoints[pool . destination . random below N], of plain cluster IPs
//	to-ip-N, -port-N the same for other frontends: @service-owners and @nodeport-owners say whose endpoints
//	to-ip-local-N    of the endpoints of this node only
//	sticky-...-T     to what @affinity has for the client, else note-...-N and again; T is the timeout
//	external-...     tell clients outside the cluster from others
//	firewall         check the source ranges, in @sources
//	turn-K           DNAT to the endpoints of one port in turn, with that scheduler alone (schedule.go), or
//	                 to those of them with the fewest connections (least.go)
//
// N is one of a few sizes: places that are empty are drawn again. So no chain is made or
// changed when endpoints come and go, whatever the service is like: that changes a few
// elements, and the numbers of actions are no verdicts, which would make the kernel walk
// the table. A plain cluster IP costs three lookups however many services there are,
// any other frontend one more.
//
// What comes to a balancer that does more than pass on packets goes to the edge of the node (hand.go): such a frontend
// belongs to itself, with the edge as its only endpoint.
//
// Invariants, cited by number in the code:
//
//	P1 Only our own tables are ever written to.
//	P2 Every change of the rules is one transaction: no packet sees half of it.
//	P3 After every commit the kernel holds exactly what Model describes, whatever was there before.
//	P4 A service's fragment depends on that service, its slices and the node only.
package proxy
