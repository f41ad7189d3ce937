package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
)

// frontends are the kinds of way to one pod that first packets take, as BenchmarkFirstPacket names
// them, and crowds among how many services.
var (
	frontends = []string{"straight", "hand", "plain", "port", "balancer", "sticky"}
	crowds    = []string{"1", "10000", "30000"}
)

// firstPacket is how long the first packet of a flow and its answer take.
func firstPacket(kind, crowd string) measure {
	words := map[string]string{
		"straight": "straight to the pod", "hand": "by rules written by hand", "plain": "by a cluster IP", "port": "by a node port", "balancer": "by a balancer's address", "sticky": "by a sticky service",
	}
	return measure{fmt.Sprintf("first packet and answer, %s services: %s, p50", crowd, words[kind]), micros, bar{}, bar{}, 0}
}

// firstOfHand is that of rules by hand.
func firstOfHand(kind, crowd string) measure {
	m := firstPacket(kind, crowd)
	return measure{m.name + ", of that by hand", plain, bar{}, below(1.15), 0}
}

// What is asked of the network.
var (
	firstFlat      = measure{"first packet by a cluster IP: 30,000 services, of 1", plain, bar{}, below(1.15), 0}
	streamService  = measure{"a stream by a service, of that straight to the pod", plain, bar{}, above(0.95), 0}
	streamVXLAN    = measure{"a stream between nodes by VXLAN", megabytes, bar{}, bar{}, 0}
	streamBare     = measure{"the same by bare VXLAN", megabytes, bar{}, bar{}, 0}
	streamOfBare   = measure{"the same, of bare VXLAN", plain, bar{}, above(0.95), 0}
	changes50      = measure{"10,000 services, 100 changes a second: slice to kernel, p50", millis, bar{}, bar{}, 0}
	changes99      = measure{"the same, p99", millis, bar{}, below(25), 0}
	changeOfMany   = measure{"one change of 5,000 endpoints: processor time", millis, bar{}, below(2), 0}
	fullSync       = measure{"all rules of 30,000 services", seconds, bar{}, below(2), 0}
	syncAgain      = measure{"the same, after a restart", seconds, bar{}, below(2), 0}
	servicesFlat   = measure{"30,000 Services created in a namespace: the last five thousand, of the first", plain, bar{}, below(1.2), 0}
	servicesCPU    = measure{"the same, by processor time", plain, bar{}, bar{}, 0}
	policies99     = measure{"a pod among 1,000 policies and 10,000 peers, to kernel, p99", millis, bar{}, below(20), 0}
	queries        = measure{"DNS: names of the cluster, 8 clients", perSecond, bar{}, bar{}, 0}
	queriesPlain   = measure{"the same, CoreDNS with its plugin hosts", perSecond, bar{}, bar{}, 0}
	queriesOf      = measure{"DNS, of CoreDNS", plain, bar{}, above(0.9), 0}
	queries99      = measure{"DNS: names of the cluster, p99", micros, bar{}, bar{}, 0}
	requests       = measure{"Ingress: HTTP/1.1 requests, 32 connections", perSecond, bar{}, bar{}, 0}
	requestsNginx  = measure{"the same, nginx", perSecond, bar{}, bar{}, 0}
	requestsOf     = measure{"Ingress, of nginx", plain, bar{}, above(0.6), 0}
	requests99     = measure{"Ingress: p99, of nginx", plain, bar{}, below(2), 0}
	requestsMany   = measure{"Ingress: requests with 10,000 hosts", perSecond, bar{}, bar{}, 0}
	requestsFlat   = measure{"the same, of one host", plain, bar{}, above(0.9), 0}
	edgeCost       = measure{"the edge process: processor time of a request by HTTP/1.1", micros, bar{}, bar{}, 0}
	edgeCostNginx  = measure{"the same, nginx", micros, bar{}, bar{}, 0}
	edgeCostOf     = measure{"the edge process by HTTP/1.1: processor time, of nginx", plain, bar{}, below(1.7), 0}
	edgeRate       = measure{"the same: requests, of nginx", plain, bar{}, bar{}, 0}
	edgeSlow       = measure{"the same: p99, of nginx", plain, bar{}, below(2), 0}
	edgeCalm       = measure{"the edge process by HTTP/1.1: p99 at 2,000 requests a second", micros, bar{}, bar{}, 0}
	edgeCalmNginx  = measure{"the same: p99 at 2,000 requests a second, nginx", micros, bar{}, bar{}, 0}
	edgeCalmOf     = measure{"the edge process by HTTP/1.1: p99 at 2,000 requests a second, of nginx", plain, bar{}, below(2), 0}
	edgeCost2      = measure{"the edge process: processor time of a request by HTTP/2 and TLS", micros, bar{}, bar{}, 0}
	edgeCost2Nginx = measure{"the same by HTTP/2 and TLS, nginx", micros, bar{}, bar{}, 0}
	edgeCost2Of    = measure{"the edge process by HTTP/2 and TLS: processor time, of nginx", plain, bar{}, bar{}, 0}
	edgeRate2      = measure{"the same by HTTP/2 and TLS: requests, of nginx", plain, bar{}, bar{}, 0}
	edgeSlow2      = measure{"the same by HTTP/2 and TLS: p99, of nginx", plain, bar{}, bar{}, 0}
	edgeMemory     = measure{"the edge process with 1,000 hosts: memory (RSS)", mebibytes, bar{}, below(40), 0}
)

// netOrder is the order of the table.
var netOrder = func() (all []measure) {
	for _, crowd := range crowds {
		for _, kind := range frontends {
			all = append(all, firstPacket(kind, crowd))
			if kind != "straight" && kind != "hand" {
				all = append(all, firstOfHand(kind, crowd))
			}
		}
	}
	return append(all, firstFlat, streamService, streamVXLAN, streamBare, streamOfBare, changes50, changes99, changeOfMany, fullSync, syncAgain, servicesFlat, servicesCPU, policies99,
		queries, queriesPlain, queriesOf, queries99, requests, requestsNginx, requestsOf, requests99, requestsMany, requestsFlat, edgeMemory,
		edgeCost, edgeCostNginx, edgeCostOf, edgeRate, edgeSlow, edgeCalm, edgeCalmNginx, edgeCalmOf, edgeCost2, edgeCost2Nginx, edgeCost2Of, edgeRate2, edgeSlow2)
}()

// A netStep is what is measured of one part of the network: benchmarks of a package, or something else.
type netStep struct {
	name  string
	tests []goTest
	do    func(*bench, context.Context) error
}

// goBench runs the benchmarks of a package that match, so often.
func goBench(pkg, match, times string, figures map[*regexp.Regexp]measure) goTest {
	return goTest{pkg, []string{"-test.run=^$", "-test.bench=" + match, "-test.benchtime=" + times, "-test.timeout=20m"}, "", figures}
}

// netSteps are in the order in which they are measured.
func netSteps() []netStep {
	first := map[*regexp.Regexp]measure{}
	for _, crowd := range crowds {
		for _, kind := range frontends {
			first[figure("FirstPacket/"+kind+"-"+crowd+"-services", "p50-us")] = firstPacket(kind, crowd)
		}
	}
	return []netStep{
		{name: "services", tests: []goTest{
			goBench("proxy", "^BenchmarkFirstPacket$", "10000x", first),
			goBench("proxy", "^BenchmarkStream$", "20x", map[*regexp.Regexp]measure{figure("Stream", "of-direct"): streamService}),
			goBench("proxy", "^BenchmarkChanges$", "2000x", map[*regexp.Regexp]measure{figure("Changes", "p50-ms"): changes50, figure("Changes", "p99-ms"): changes99}),
			goBench("proxy", "^BenchmarkOneOfMany$/^plain$", "2000x", map[*regexp.Regexp]measure{figure("OneOfMany/plain", "cpu-ms"): changeOfMany}),
			goBench("proxy", "^BenchmarkFullSync$", "3x", map[*regexp.Regexp]measure{figure("FullSync/new", "s/sync"): fullSync, figure("FullSync/again", "s/sync"): syncAgain}),
		}},
		{name: "between", tests: []goTest{goBench("podnet", "^BenchmarkBetweenNodes$/^IPv4$", "3s", map[*regexp.Regexp]measure{
			figure("BetweenNodes/IPv4/vxlan", "MB/s"): streamVXLAN, figure("BetweenNodes/IPv4/bare", "MB/s"): streamBare,
		})}},
		{name: "policies", tests: []goTest{goBench("netpolicy", "^BenchmarkPodAmongPolicies$/^like_others$", "300x", map[*regexp.Regexp]measure{
			figure("PodAmongPolicies/like_others", "p99-ms"): policies99,
		})}},
		{name: "dns", tests: []goTest{goBench("dns", "^BenchmarkQuestions$/^(cluster|hosts)$", "100000x", map[*regexp.Regexp]measure{
			figure("Questions/cluster", "queries/s"): queries, figure("Questions/hosts", "queries/s"): queriesPlain, figure("Questions/cluster", "p99-us"): queries99,
		})}},
		{name: "edge", tests: []goTest{goBench("edge", "^BenchmarkRequests$", "5x", map[*regexp.Regexp]measure{
			figure("Requests/1-hosts", "req/s"): requests, figure("Requests/1-hosts", "nginx-req/s"): requestsNginx, figure("Requests/1-hosts", "of-nginx"): requestsOf,
			figure("Requests/1-hosts", "p99-of-nginx"): requests99, figure("Requests/10000-hosts", "req/s"): requestsMany,
		})}},
		{name: "proxies", do: (*bench).edgeStep},
		{name: "creation", tests: []goTest{goBench("plane", "^BenchmarkThirtyThousandServices$", "1x", map[*regexp.Regexp]measure{
			figure("ThirtyThousandServices", "last/first"): servicesFlat, figure("ThirtyThousandServices", "last/first-cpu"): servicesCPU,
		})}},
	}
}

// netTests are the benchmarks of the steps that are asked for.
func (b *bench) netTests() (all []goTest) {
	for _, s := range netSteps() {
		if b.steps == "" || listed(b.steps, s.name) {
			all = append(all, s.tests...)
		}
	}
	return all
}

// net measures the network of a node. A step that fails keeps nobody from the others.
func (b *bench) net(ctx context.Context) error {
	if _, err := exec.LookPath("nginx"); err != nil && (b.steps == "" || listed(b.steps, "edge") || listed(b.steps, "proxies")) {
		return errors.New("there is no nginx to compare with: apt-get install nginx-light, or name other steps with STEPS")
	}
	var errs []error
	for _, s := range netSteps() {
		if b.steps != "" && !listed(b.steps, s.name) {
			continue
		}
		err := b.runTests(ctx, s.tests)
		if err == nil && s.do != nil {
			err = s.do(b, ctx)
		}
		if err != nil {
			b.say("%s: %v", s.name, err)
			b.missing = append(b.missing, s.name)
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	b.netRatios()
	return errors.Join(errs...)
}

// netRatios are what follows from other figures.
func (b *bench) netRatios() {
	of := func(to, v, base measure) {
		if b.results[v] > 0 && b.results[base] > 0 {
			b.results[to] = b.results[v] / b.results[base]
		}
	}
	for _, crowd := range crowds {
		for _, kind := range frontends[2:] {
			of(firstOfHand(kind, crowd), firstPacket(kind, crowd), firstPacket("hand", crowd))
		}
	}
	of(firstFlat, firstPacket("plain", crowds[len(crowds)-1]), firstPacket("plain", crowds[0]))
	of(streamOfBare, streamVXLAN, streamBare)
	of(queriesOf, queries, queriesPlain)
	of(requestsFlat, requestsMany, requests)
}

// netDocument is the report of the part net.
func (b *bench) netDocument(about string) string {
	table, met, bars := b.results.table(nil, nil)
	missing := ""
	if len(b.missing) > 0 {
		missing = " **Not measured to its end: " + strings.Join(b.missing, ", ") + ".**"
	}
	return fmt.Sprintf(`# The network, measured

Written by `+"`make bench-net`"+` (test/bench). %s
Other work on the machine counts in what passed on the clock: its load (of the last minute) was %s when the measurement began, and %s when it ended.%s

Each figure stands beside the bar that it is held to; in brackets, how much of the bar the figure is. %d of %d bars are met.

%s
Packets are really sent, between network namespaces of one machine: a client, a router with the rules, and a pod. First packets are those of UDP flows, from the client's socket to the answer. The rules by
hand are the shortest that do it: one map from address, protocol and port to the pod, and no way back to look after.
Streams are TCP over one connection, by turns with what they are compared with. Bare VXLAN is a device as the program ip makes it.
Slice to kernel is from the change in the proxy's cache to the rules in force, with what the proxy waits to take several changes together.
DNS is asked over UDP by 8 clients in the same process, each one question at a time; CoreDNS beside it is the same server with a Corefile that has its plugin hosts in the place of the cluster's.
Requests go by HTTP/1.1 over 32 connections that are kept, to an edge and to nginx before the same backend, by turns of a second. Client, backend and edge are one process; nginx has two workers of its own on the same processors.
The edge process and nginx are also measured as processes of their own, in network namespaces of their own beside that of the clients and the backend, each with two seconds by turns: their processor time is that of the kernel for them too.
30,000 Services are created one after another with all controllers of a control plane, in memory, each until it has its EndpointSlice.
`, about, b.busy, load(), missing, met, bars, table)
}
