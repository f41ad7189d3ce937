package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A bar is a value to stay below, or, if atLeast, to reach.
type bar struct {
	value   float64
	atLeast bool
}

func below(v float64) bar { return bar{value: v} }
func above(v float64) bar { return bar{value: v, atLeast: true} }

// met says whether v satisfies the bar, and how it relates to it.
func (b bar) met(v float64) (ok bool, ratio float64) {
	if b.atLeast {
		return v >= b.value, v / b.value
	}
	return v <= b.value, v / b.value
}

// A measure is one line of the table: what is measured, and what it is held
// against. A zero bar is none.
type measure struct {
	name      string
	unit      unit
	first     bar     // what the first complete version should reach
	goal      bar     // the charter's
	elsewhere float64 // the best known elsewhere, or upstream's server library on such work
}

const noDisk = 1 // KiB in a minute that count as none

// The measures, in the order of the table. elsewhere holds figures of others
// that were measured on a machine of this kind.
var (
	startReady     = measure{"start to node Ready, empty machine", seconds, below(5), below(3), 0}
	startReadyWarm = measure{"start to node Ready, images present", seconds, below(5), below(3), 0}
	startPod       = measure{"start to first pod running, DNS up, images present", seconds, bar{}, below(3), 19.9}
	podOne50       = measure{"pod created to running, one by one, p50", millis, bar{}, below(300), 1000}
	podOne99       = measure{"pod created to running, one by one, p99", millis, bar{}, bar{}, 0}
	podBurst50     = measure{"pod created to running, 20 at once, p50", millis, bar{}, bar{}, 0}
	podBurst99     = measure{"pod created to running, 20 at once, p99", millis, bar{}, bar{}, 0}
	memory         = measure{"memory (RSS), all processes, idle", mebibytes, below(300), below(150), 500}
	memoryPod      = measure{"memory (RSS) that each running pod adds (shim, pause)", mebibytes, bar{}, bar{}, 0}
	idleCPU        = measure{"processor when idle, of one core", percent, below(2), below(0.5), 5}
	idleDisk       = measure{"written to disk when idle, in a minute", kibibytes, bar{}, below(noDisk), 0}

	planeReady   = measure{"control plane alone: start to ready", seconds, bar{}, below(1), 4.4}
	planeAccount = measure{"control plane alone: start to default service account", seconds, bar{}, below(1), 10.2}
	planeMemory  = measure{"control plane alone: memory (RSS), idle", mebibytes, bar{}, below(60), 495}
	planeCPU     = measure{"control plane alone: processor when idle, of one core", percent, bar{}, below(0.5), 6.7}
	planeDisk    = measure{"control plane alone: written to disk when idle, in a minute", kibibytes, bar{}, below(noDisk), 0}

	createRate = measure{"create pods, 16 clients", perSecond, above(1500), bar{}, 840}
	createCPU  = measure{"create a pod: server's processor time", millis, bar{}, below(1.5 / 2), 1.5}
	statusRate = measure{"put pod status, 16 clients", perSecond, bar{}, bar{}, 0}
	statusCPU  = measure{"put a pod's status: server's processor time", millis, bar{}, below(5.0 / 4), 5}
	getRate    = measure{"get pods, 16 clients", perSecond, above(5000), bar{}, 1900}
	getCPU     = measure{"get a pod: server's processor time", millis, bar{}, below(0.75 / 5), 0.75}
	applyRate  = measure{"apply deployments, 16 clients", perSecond, bar{}, bar{}, 0}
	applyCPU   = measure{"apply a deployment: server's processor time", millis, bar{}, below(8.0 / 4), 8}
	watchCPU   = measure{"watch: server's processor time per delivered event", micros, bar{}, below(51.0 / 5), 51}
	listJSON   = measure{"list 10,000 pods as JSON: wall time", millis, below(350), bar{}, 2000}
	listJSONc  = measure{"list 10,000 pods as JSON: server's processor time", millis, bar{}, below(1900.0 / 10), 1900}
	listProto  = measure{"list 10,000 pods as protobuf: wall time", millis, below(250), bar{}, 1000}
	listProtoc = measure{"list 10,000 pods as protobuf: server's processor time", millis, bar{}, below(850.0 / 10), 850}
	fullMemory = measure{"memory (RSS) with 10,000 pods and 8,000 config maps", mebibytes, bar{}, below(300), 1437}
	fullAgain  = measure{"the same, restarted", mebibytes, bar{}, below(300), 580}
	fullStart  = measure{"the same: start to ready", seconds, bar{}, bar{}, 0}

	// The load from outside: the server's processor time for each; elsewhere is
	// upstream's server library under the same load.
	outMap         = measure{"outside: create a config map", millis, bar{}, below(0.4), 1.3}
	outPod         = measure{"outside: create a pod that is bound", millis, bar{}, below(0.8), 2.4}
	outFirst       = measure{"outside: first status of a pod", millis, bar{}, below(0.9), 4.6}
	outPut         = measure{"outside: put a pod's status", millis, bar{}, below(0.8), 4.9}
	outMerge       = measure{"outside: merge patch of a pod's status", millis, bar{}, below(1), 4.9}
	outStrategic   = measure{"outside: strategic merge patch of a pod's status", millis, bar{}, below(1), 4.9}
	outApply       = measure{"outside: apply to a pod's status", millis, bar{}, below(1), 7.6}
	outGet         = measure{"outside: get a pod", millis, bar{}, below(0.09), 0.7}
	outList        = measure{"outside: list 10,000 pods as JSON, whole", millis, bar{}, below(100), 1860}
	outPages       = measure{"outside: list 10,000 pods as JSON, in pages of 500", millis, bar{}, below(120), 1930}
	outProto       = measure{"outside: list 10,000 pods as protobuf, whole", millis, bar{}, below(60), 810}
	outProtoPages  = measure{"outside: list 10,000 pods as protobuf, in pages of 500", millis, bar{}, below(80), 830}
	outNode        = measure{"outside: list the 100 pods of a node", millis, bar{}, below(1.5), 19}
	outStream      = measure{"outside: stream 10,000 pods as JSON", millis, bar{}, below(120), 3800}
	outProtoStream = measure{"outside: stream 10,000 pods as protobuf", millis, bar{}, below(80), 1300}
	outFew         = measure{"outside: event of 50/s to 200 watches, 10 a connection", micros, bar{}, below(8), 77}
	outFew50       = measure{"outside: the same, how late, p50", millis, bar{}, below(3), 10}
	outFew99       = measure{"outside: the same, how late, p99", millis, bar{}, below(8), 29}
	outMany        = measure{"outside: event of 10/s to 1,000 watches, 10 a connection", micros, bar{}, below(8), 62}
	outMany50      = measure{"outside: the same to 1,000, how late, p50", millis, bar{}, below(8), 21}
	outMany99      = measure{"outside: the same to 1,000, how late, p99", millis, bar{}, below(20), 63}
	outMemory      = measure{"outside: memory (RSS) at most", mebibytes, bar{}, below(350), 1070}
	outRest        = measure{"outside: memory (RSS) at rest after it", mebibytes, bar{}, below(200), 1010}

	// What objects of a custom kind take of the processor time that the same objects of a built-in kind do.
	customCreate = measure{"custom kind: create, of what a config map of the same size takes", plain, bar{}, below(1.3), 0}
	customGet    = measure{"custom kind: get, likewise", plain, bar{}, below(1.3), 0}
	customList   = measure{"custom kind: list as JSON, whole, likewise", plain, bar{}, below(1.3), 0}
	customPages  = measure{"custom kind: list as JSON, in pages of 500, likewise", plain, bar{}, below(1.3), 0}
	customEvent  = measure{"custom kind: event of 20/s to 100 watches, likewise", plain, bar{}, below(1.3), 0}

	size       = measure{"size of the program", mebibytes, bar{}, bar{}, 0}
	sizePacked = measure{"size of the program, compressed (zstd)", mebibytes, bar{}, below(70), 77.5}

	simHour     = measure{"1,000 simulated nodes for a virtual hour", seconds, below(60), bar{}, 0}
	schedPlain  = measure{"scheduling, 5,000 nodes: plain", perSecond, bar{}, above(5000), 810}
	schedNear   = measure{"scheduling, 5,000 nodes: affinity", perSecond, bar{}, above(1000), 35}
	schedApart  = measure{"scheduling, 5,000 nodes: anti-affinity", perSecond, bar{}, above(1000), 60}
	schedSpread = measure{"scheduling, 5,000 nodes: topology spread", perSecond, bar{}, above(2000), 460}
	schedBind   = measure{"schedule and bind through the API (memory store)", perSecond, bar{}, above(2000), 150}
)

// What is asked of whole clusters of simulated nodes, whose part of the work is in the figures.
var (
	scalePods        = measure{"30,000 pods of 300 Deployments, to Ready", perSecond, bar{}, above(300), 0}
	scalePodsMemory  = measure{"the same: memory (RSS) at most", mebibytes, bar{}, below(1024), 0}
	scaleRollout     = measure{"a Deployment of 5,000 pods rolled out", seconds, bar{}, below(60), 0}
	scaleJob         = measure{"a Job of 10,000 completions", perSecond, bar{}, above(150), 0}
	scaleCron        = measure{"5,000 CronJobs of one minute started", seconds, bar{}, below(15), 0}
	scaleNamespace   = measure{"a namespace with 10,000 objects gone", seconds, bar{}, below(20), 0}
	scaleDependents  = measure{"an owner with 20,000 dependents gone", seconds, bar{}, below(30), 0}
	scaleEndpoints   = measure{"a Service of 10,000 endpoints, 100 changes a second, of one core", percent, bar{}, below(15), 0}
	scaleAutoscalers = measure{"1,000 autoscalers at rest, of one core", percent, bar{}, below(15), 0}
	scaleNodes       = measure{"5,000 nodes with 50,000 pods at rest, of one core", percent, bar{}, below(35), 0}
	scaleNodesMemory = measure{"the same: memory (RSS)", mebibytes, bar{}, below(1024), 0}
)

// What is asked of clusters of several machines. elsewhere is another distribution's agent.
var (
	agentReady   = measure{"agent: joined by a token, to node Ready", seconds, bar{}, below(3), 0}
	agentMemory  = measure{"agent at rest: memory (RSS)", mebibytes, bar{}, below(60), 275}
	agentShared  = measure{"the same, pages that several share counted in parts (PSS)", mebibytes, bar{}, bar{}, 0}
	agentAnon    = measure{"the same, without pages of files", mebibytes, bar{}, bar{}, 0}
	agentCPU     = measure{"agent at rest: processor, of one core", percent, bar{}, below(0.3), 3}
	agentWatches = measure{"agent at rest: watches", plain, bar{}, bar{}, 0}

	nodesReady  = measure{"two servers with nodes joined to the first, one after the other, to node Ready", seconds, bar{}, bar{}, 0}
	nodesMemory = measure{"three servers with nodes and three agents at rest: memory (RSS) of each server", mebibytes, bar{}, bar{}, 0}
	nodesAnon   = measure{"the same, memory without pages of files", mebibytes, bar{}, bar{}, 0}
	nodesCPU    = measure{"the same: processor of each server, of one core", percent, bar{}, bar{}, 0}

	serversReady    = measure{"two servers joined to the first, one after the other", seconds, bar{}, bar{}, 0}
	serversMemory   = measure{"three servers at rest: memory (RSS) of each", mebibytes, bar{}, below(90), 0}
	serversAnon     = measure{"three servers at rest: memory without pages of files", mebibytes, bar{}, bar{}, 0}
	serversCPU      = measure{"three servers at rest: processor of each, of one core", percent, bar{}, below(1), 0}
	writesOne       = measure{"create config maps, one client, one server, p50", millis, bar{}, bar{}, 0}
	writesThree     = measure{"the same, three servers", millis, bar{}, bar{}, 0}
	writesLeader    = measure{"the same, asked of the one that leads", millis, bar{}, bar{}, 0}
	writesStill     = measure{"creates of three while the third stands still, asked of one that follows, p50", millis, bar{}, bar{}, 0}
	stillRatio      = measure{"creates of three while the third stands still, of one server's", plain, bar{}, below(2), 0}
	writesRatio     = measure{"creates of three, of one server's", plain, bar{}, below(2), 0}
	plainOne        = measure{"plain etcd beside it: put, one member, p50", millis, bar{}, bar{}, 0}
	plainThree      = measure{"the same, three members", millis, bar{}, bar{}, 0}
	plainRatio      = measure{"the same, of one member's", plain, bar{}, bar{}, 0}
	syncOne         = measure{"this disk: 500 bytes appended and synchronized, p50", millis, bar{}, bar{}, 0}
	syncThree       = measure{"the same, three files at a time", millis, bar{}, bar{}, 0}
	apartOne        = measure{"memory for a disk: create config maps, one server, p50", millis, bar{}, bar{}, 0}
	apartThree      = measure{"the same, three servers, each its own", millis, bar{}, bar{}, 0}
	apartLeader     = measure{"memory for disks: creates of three, asked of the one that leads", millis, bar{}, bar{}, 0}
	apartStill      = measure{"memory for disks: creates of three while the third stands still, asked of one that follows, p50", millis, bar{}, bar{}, 0}
	apartStillRatio = measure{"memory for disks: creates of three while the third stands still, of one server's", plain, bar{}, below(2), 0}
	apartRatio      = measure{"memory for disks: creates of three, of one server's", plain, bar{}, below(2), 0}
	plainApartOne   = measure{"memory for a disk: plain etcd, put, one member, p50", millis, bar{}, bar{}, 0}
	plainApartThree = measure{"the same, three members of plain etcd", millis, bar{}, bar{}, 0}
	plainApartRatio = measure{"memory for disks: puts of three, of one member's", plain, bar{}, bar{}, 0}
	getsOne         = measure{"get config maps, 16 clients, one server", perSecond, bar{}, bar{}, 0}
	getsThree       = measure{"gets, three servers", perSecond, bar{}, bar{}, 0}
	getsRatio       = measure{"gets of three, of one server's", plain, bar{}, above(0.7), 0}

	killWrites      = measure{"the leader killed: others take writes after", seconds, bar{}, below(3), 0}
	killControllers = measure{"the leader killed: others run controllers after", seconds, bar{}, below(10), 0}
	killScheduler   = measure{"the leader killed: others schedule after", seconds, bar{}, below(10), 0}
	killEndpoints   = measure{"a server killed: not among the endpoints of the API after", seconds, bar{}, below(15), 0}
	stopWrites      = measure{"the leader stopped: others take writes after", seconds, bar{}, below(1), 0}
	stopControllers = measure{"the leader stopped: others run controllers after", seconds, bar{}, below(1), 0}
	stopScheduler   = measure{"the leader stopped: others schedule after", seconds, bar{}, below(1), 0}

	manyMemory      = measure{"a server with 1,000 agents: memory (RSS)", mebibytes, bar{}, below(600), 0}
	manyEach        = measure{"the same, for each agent", kibibytes, bar{}, bar{}, 0}
	manyAlive       = measure{"the same: objects that are alive", mebibytes, bar{}, bar{}, 0}
	manyGarbage     = measure{"the same: garbage that has gathered", mebibytes, bar{}, bar{}, 0}
	manyFree        = measure{"the same: room between and behind them", mebibytes, bar{}, bar{}, 0}
	manyCollections = measure{"the same: collections in a minute", plain, bar{}, bar{}, 0}
	manyStacks      = measure{"the same: stacks", mebibytes, bar{}, bar{}, 0}
	manyFiles       = measure{"the same: pages of files", mebibytes, bar{}, bar{}, 0}
	manyCPU         = measure{"the same at rest: processor, of one core", percent, bar{}, below(25), 0}
	manyWatches     = measure{"the same: watches of each", plain, bar{}, bar{}, 0}
	manyReady       = measure{"the same: all Ready after", seconds, bar{}, bar{}, 0}

	shortWatches = measure{"an agent's watches after 10,000 short pods with secrets, of those before", percent, bar{}, below(100), 0}
)

// order is the order of the table.
var order = slices.Concat([]measure{
	startReady, startReadyWarm, startPod, podOne50, podOne99, podBurst50, podBurst99, memory, memoryPod, idleCPU, idleDisk,
	planeReady, planeAccount, planeMemory, planeCPU, planeDisk,
	listJSON, listJSONc, listProto, listProtoc, getRate, getCPU, createRate, createCPU, statusRate, statusCPU, applyRate, applyCPU, watchCPU,
	fullMemory, fullAgain, fullStart,
	outMap, outPod, outFirst, outPut, outMerge, outStrategic, outApply, outGet, outList, outPages, outProto, outProtoPages, outNode,
	outStream, outProtoStream, outFew, outFew50, outFew99, outMany, outMany50, outMany99, outMemory, outRest,
	customCreate, customGet, customList, customPages, customEvent,
	size, sizePacked,
	schedPlain, schedNear, schedApart, schedSpread, schedBind, simHour,
	scalePods, scalePodsMemory, scaleRollout, scaleJob, scaleCron, scaleNamespace, scaleDependents, scaleEndpoints, scaleAutoscalers, scaleNodes, scaleNodesMemory,
	agentReady, agentMemory, agentShared, agentAnon, agentCPU, agentWatches, nodesReady, nodesMemory, nodesAnon, nodesCPU,
	serversReady, serversMemory, serversAnon, serversCPU, writesOne, writesThree, writesLeader, writesRatio, writesStill, stillRatio, plainOne, plainThree, plainRatio,
	syncOne, syncThree, apartOne, apartThree, apartLeader, apartRatio, apartStill, apartStillRatio, plainApartOne, plainApartThree, plainApartRatio, getsOne, getsThree, getsRatio,
	killWrites, killControllers, killScheduler, killEndpoints, stopWrites, stopControllers, stopScheduler,
	manyMemory, manyEach, manyAlive, manyGarbage, manyFree, manyStacks, manyFiles, manyCPU, manyCollections, manyWatches, manyReady, shortWatches,
}, netOrder)

// A unit is what a measure's value counts.
type unit string

const (
	seconds   unit = "s"
	millis    unit = "ms"
	micros    unit = "µs"
	mebibytes unit = "MiB"
	kibibytes unit = "KiB"
	percent   unit = "%"
	perSecond unit = "/s"
	megabytes unit = "MB/s"
	plain     unit = ""
)

// format writes a value with three significant digits and its unit.
func (u unit) format(v float64) string {
	digits := 0
	if v != 0 {
		digits = max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	}
	s := strconv.FormatFloat(v, 'f', min(digits, 4), 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	whole, _, _ := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if u == percent || u == perSecond || u == plain {
		return s + string(u)
	}
	return s + " " + string(u)
}

// of turns a duration into a value of the unit.
func (u unit) of(d time.Duration) float64 {
	switch u {
	case seconds:
		return d.Seconds()
	case millis:
		return float64(d) / float64(time.Millisecond)
	case micros:
		return float64(d) / float64(time.Microsecond)
	}
	panic(fmt.Sprintf("%q is not a unit of time", u))
}
