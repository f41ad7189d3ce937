package main

import (
	"strings"
	"testing"
)

func TestFlagsReachTheMachinesThatTheyAreFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ said, first, servers, agents string }{
		{},
		{said: "--disable-agent", first: "--disable-agent", servers: "--disable-agent=true"},
		{
			said: "--max-pods 50 --secure-port=7443", first: "--max-pods 50 --secure-port=7443",
			servers: "--max-pods=50 --secure-port=7443", agents: "--max-pods=50",
		},
		{ // what runs on servers is not what runs on agents
			said: "--register-with-taints a=b:NoSchedule --node-labels x=1 -- --node-labels x=2", first: "--register-with-taints a=b:NoSchedule --node-labels x=1",
			servers: "--register-with-taints=a=b:NoSchedule --node-labels=x=1", agents: "--node-labels=x=2",
		},
		{ // who and where each is, is its own
			said: "--node-name a --pod-logs-dir /logs --advertise-address 192.0.2.1 --from-etcd /etcd --log-format json", first: "--node-name a --pod-logs-dir /logs --advertise-address 192.0.2.1 --from-etcd /etcd --log-format json",
			servers: "--log-format=json", agents: "--log-format=json",
		},
		{ // what servers tell them, agents need not be told
			said: "--cluster-domain here --cloud-provider loopback", first: "--cluster-domain here --cloud-provider loopback",
			servers: "--cluster-domain=here --cloud-provider=loopback",
		},
		{ // what is said of agents goes before what is said of all
			said: "--max-pods 50 --allowed-unsafe-sysctls a,b -- --max-pods 60 --lb-server-port=7000", first: "--max-pods 50 --allowed-unsafe-sysctls a,b",
			servers: "--max-pods=50 --allowed-unsafe-sysctls=a,b", agents: "--allowed-unsafe-sysctls=a,b --max-pods=60 --lb-server-port=7000",
		},
		{ // processors are given out once
			said: "--cpu-manager-policy static --reserved-cpus 0 --memory-manager-policy None", first: "--cpu-manager-policy static --reserved-cpus 0 --memory-manager-policy None",
			servers: "--reserved-cpus=0", agents: "--reserved-cpus=0",
		},
		{said: "--config /a.yaml", first: "--config /a.yaml", servers: "--config=/a.yaml", agents: "--config=/a.yaml"},
	} {
		up, _, err := newRoot().Find([]string{"up"})
		if err != nil {
			t.Fatal(err)
		}
		got, err := flagsOfMachines(up, strings.Fields(c.said))
		if err != nil {
			t.Errorf("%s: %v", c.said, err)
		}
		for _, w := range []struct {
			of   string
			got  []string
			want string
		}{{"first server", got.first, c.first}, {"further servers", got.servers, c.servers}, {"agents", got.agents, c.agents}} {
			if got := strings.Join(w.got, " "); got != w.want {
				t.Errorf("%s: %s: got %q, want %q", c.said, w.of, got, w.want)
			}
		}
	}
}

func TestFlagsThatNoMachineTakesAreRefused(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"--no-such-flag":                 "flags of kemudi server: unknown flag: --no-such-flag",
		"--lb-server-port 1":             "flags of kemudi server: unknown flag: --lb-server-port",
		"--secure-port many":             "flags of kemudi server: invalid argument",
		"web":                            `flags of kemudi server: unexpected argument "web"`,
		"-- --disable-agent":             "flags of kemudi agent: unknown flag: --disable-agent",
		"-- --node-name a":               "--node-name behind the second --: each agent has its own",
		"-- --cpu-manager-policy static": "--cpu-manager-policy behind the second --: only the first server gives out processors and memory of this machine",
		"-- --max-pods 1 -- a":           `flags of kemudi agent: unexpected argument "a"`,
	} {
		if r := (call{}).run(t, append([]string{"up", "--"}, strings.Fields(said)...)...); r.code != exitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: got %+v, want %s", said, r, want)
		}
	}
}
