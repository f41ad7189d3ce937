package simulate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/cloud/scale"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/simnode"
)

// Pool is a group of nodes that are alike.
type Pool struct {
	Name string `json:"name"`
	// Count is how many nodes there are at first. There are never fewer than Min nor more than Max;
	// both are Count unless they are set.
	Count int  `json:"count"`
	Min   *int `json:"min"`
	Max   *int `json:"max"`

	CPU     string            `json:"cpu"`     // default 4
	Memory  string            `json:"memory"`  // default 16Gi
	Pods    int               `json:"pods"`    // how many a node takes; default 110
	Devices map[string]string `json:"devices"` // extended resources, by name
	Drivers []simnode.Driver  `json:"drivers"` // of devices that claims are given

	Labels map[string]string `json:"labels"`
	Taints []corev1.Taint    `json:"taints"`

	StartAfter     metav1.Duration `json:"startAfter"`     // how long a pod takes to run; default 1s
	ProvisionAfter metav1.Duration `json:"provisionAfter"` // how long a node takes to come; default 30s
	IdleAfter      metav1.Duration `json:"idleAfter"`      // how long a node without pods stays; default 10m
	Failing        float64         `json:"failing"`        // the share of pods that fail, from 0 to 1
}

// Profile is what a file of pools holds.
type Profile struct {
	Pools []Pool `json:"pools"`
}

// PoolLabel is on each node of a pool, with its name.
const PoolLabel = "sim.kemudi.io/pool"

// ParseProfile reads a profile in YAML, and says which field is wrong.
func ParseProfile(data []byte) (*Profile, error) {
	p := &Profile{}
	if err := yaml.UnmarshalStrict(data, p); err != nil {
		return nil, err
	}
	if len(p.Pools) == 0 {
		return nil, fmt.Errorf("pools: at least one is needed")
	}
	nodes := 0
	for i := range p.Pools {
		pool := &p.Pools[i]
		if err := pool.complete(); err != nil {
			return nil, fmt.Errorf("pools[%d].%w", i, err)
		}
		if slices.ContainsFunc(p.Pools[:i], func(other Pool) bool { return other.Name == pool.Name }) {
			return nil, fmt.Errorf("pools[%d].name: there is another pool %q", i, pool.Name)
		}
		nodes += *pool.Max
	}
	if nodes > simnode.MaxSmallNodes {
		return nil, fmt.Errorf("pools: %d nodes at the most are more than the %d that have addresses", nodes, simnode.MaxSmallNodes)
	}
	return p, nil
}

// OnePool is the profile of so many nodes that are all alike.
func OnePool(nodes int) (*Profile, error) {
	p := &Profile{Pools: []Pool{{Name: "node", Count: nodes}}}
	return p, p.Pools[0].complete()
}

// complete fills in what is not set, and checks the rest.
func (p *Pool) complete() error {
	if problems := validation.IsDNS1123Label(p.Name); len(problems) > 0 {
		return fmt.Errorf("name: %q: %s", p.Name, problems[0])
	}
	if p.Min == nil {
		p.Min = &p.Count
	}
	if p.Max == nil {
		p.Max = &p.Count
	}
	if p.CPU == "" {
		p.CPU = "4"
	}
	if p.Memory == "" {
		p.Memory = "16Gi"
	}
	if p.Pods == 0 {
		p.Pods = 110
	}
	for _, d := range []struct {
		of       *metav1.Duration
		fallback string
	}{{&p.StartAfter, "1s"}, {&p.ProvisionAfter, "30s"}, {&p.IdleAfter, "10m"}} {
		if d.of.Duration == 0 {
			if err := d.of.UnmarshalJSON([]byte(`"` + d.fallback + `"`)); err != nil {
				return err
			}
		}
	}
	return p.check()
}

func (p *Pool) check() error {
	switch {
	case p.Count < 0:
		return fmt.Errorf("count: %d is negative", p.Count)
	case *p.Min < 0 || *p.Min > p.Count:
		return fmt.Errorf("min: %d is not between 0 and count, %d", *p.Min, p.Count)
	case *p.Max < p.Count:
		return fmt.Errorf("max: %d is less than count, %d", *p.Max, p.Count)
	case p.Pods < 0 || p.Pods > 254:
		return fmt.Errorf("pods: %d is not between 1 and 254, as many as have addresses", p.Pods)
	case p.Failing < 0 || p.Failing > 1:
		return fmt.Errorf("failing: %g is not between 0 and 1", p.Failing)
	}
	amounts := map[string]string{"cpu": p.CPU, "memory": p.Memory}
	for name, amount := range p.Devices {
		if problems := validation.IsQualifiedName(name); len(problems) > 0 {
			return fmt.Errorf("devices: %q: %s", name, problems[0])
		}
		amounts["devices["+name+"]"] = amount
	}
	for field, amount := range amounts {
		if q, err := apiresource.ParseQuantity(amount); err != nil || q.Sign() <= 0 {
			return fmt.Errorf("%s: %q is no amount above zero", field, amount)
		}
	}
	for key, value := range p.Labels {
		if problems := slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)); len(problems) > 0 {
			return fmt.Errorf("labels: %s=%s: %s", key, value, problems[0])
		}
	}
	if err := p.checkDrivers(); err != nil {
		return err
	}
	for i, t := range p.Taints {
		switch t.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			return fmt.Errorf("taints[%d].effect: %q is neither NoSchedule, PreferNoSchedule nor NoExecute", i, t.Effect)
		}
	}
	return nil
}

// mostDevices is how many devices a slice holds: a driver publishes one for each node.
const mostDevices = resourcev1.ResourceSliceMaxDevices

func (p *Pool) checkDrivers() error {
	for i := range p.Drivers {
		d := &p.Drivers[i]
		if problems := validation.IsDNS1123Subdomain(d.Name); len(problems) > 0 {
			return fmt.Errorf("drivers[%d].name: %q: %s", i, d.Name, problems[0])
		}
		if slices.ContainsFunc(p.Drivers[:i], func(other simnode.Driver) bool { return other.Name == d.Name }) {
			return fmt.Errorf("drivers[%d].name: there is another driver %q", i, d.Name)
		}
		if d.Count < 1 || d.Count > mostDevices {
			return fmt.Errorf("drivers[%d].count: %d is not between 1 and %d, as many as a slice holds", i, d.Count, mostDevices)
		}
		errs := resource.NewErrors()
		dra.ResourceSlices.Def.Validate(d.Slice(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}), nil, errs)
		if errs.Len() > 0 {
			wrong := errs.List()[0]
			return fmt.Errorf("drivers[%d].%s: %s", i, strings.TrimPrefix(wrong.Field, "spec.devices[0]."), wrong.ErrorBody())
		}
	}
	return nil
}

// node are the options of one of the pool's nodes.
func (p *Pool) node(name string) simnode.Options {
	labels := map[string]string{PoolLabel: p.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}
	for k, v := range p.Labels {
		labels[k] = v
	}
	return simnode.Options{
		Name: name, Labels: labels, Taints: p.Taints, CPU: p.CPU, Memory: p.Memory, MaxPods: p.Pods, Devices: p.Devices, Drivers: p.Drivers,
		StartAfter: p.StartAfter.Duration, Failing: p.Failing,
	}
}

// scale is the pool as it is decided about.
func (p *Pool) scale() scale.Pool {
	n := p.node("")
	room := corev1.ResourceList{
		corev1.ResourceCPU: apiresource.MustParse(p.CPU), corev1.ResourceMemory: apiresource.MustParse(p.Memory),
		corev1.ResourcePods: *apiresource.NewQuantity(int64(p.Pods), apiresource.DecimalSI), corev1.ResourceEphemeralStorage: apiresource.MustParse("100Gi"),
	}
	for name, amount := range p.Devices {
		room[corev1.ResourceName(name)] = apiresource.MustParse(amount)
	}
	out := scale.Pool{
		Name: p.Name, Min: *p.Min, Max: *p.Max, Resources: room, Labels: n.Labels, Taints: p.Taints,
		IdleAfter: p.IdleAfter, ComeWithin: metav1.Duration{Duration: p.ProvisionAfter.Duration + registerWithin},
	}
	if len(p.Drivers) > 0 {
		out.Slices = p.slices
	}
	return out
}

// registerWithin is how long a simulated node may take to register, however busy this process is.
const registerWithin = time.Hour

// slices are the devices of one of the pool's nodes.
func (p *Pool) slices(node *corev1.Node) (out []*resourcev1.ResourceSlice) {
	for i := range p.Drivers {
		out = append(out, p.Drivers[i].Slice(node))
	}
	return out
}
