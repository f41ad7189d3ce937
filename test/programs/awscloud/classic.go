package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// on is a call for a classic balancer that there is.
func (c *cloud) on(f func(b, in *tree) (*tree, error)) action {
	return func(in *tree) (*tree, error) {
		b, err := c.balancer(in.str("LoadBalancerName"))
		if err != nil {
			return nil, err
		}
		return f(b, in)
	}
}

// balancing are the calls for classic balancers.
func (c *cloud) balancing() map[string]action {
	actions := c.policing()
	maps.Copy(actions, map[string]action{
		"CreateLoadBalancer": c.createBalancer,
		"DeleteLoadBalancer": func(in *tree) (*tree, error) {
			c.balancers = slices.DeleteFunc(c.balancers, func(b *tree) bool { return b.str("LoadBalancerName") == in.str("LoadBalancerName") })
			return &tree{}, nil
		},
		"DescribeLoadBalancers": func(in *tree) (*tree, error) {
			for _, name := range in.get("LoadBalancerNames").texts() {
				if _, err := c.balancer(name); err != nil {
					return nil, err
				}
			}
			return wrap("LoadBalancerDescriptions", with(c.balancers, "LoadBalancerName", in.get("LoadBalancerNames").texts())...), nil
		},
		"CreateLoadBalancerListeners": c.on(func(b, in *tree) (*tree, error) {
			listen(b, in.get("Listeners"))
			return &tree{}, nil
		}),
		"DeleteLoadBalancerListeners": c.on(func(b, in *tree) (*tree, error) {
			listeners := b.get("ListenerDescriptions")
			listeners.drop(func(l *tree) bool {
				return slices.Contains(in.get("LoadBalancerPorts").texts(), l.str("Listener.LoadBalancerPort"))
			})
			b.set("ListenerDescriptions", listeners)
			return &tree{}, nil
		}),
		"ConfigureHealthCheck": c.on(func(b, in *tree) (*tree, error) {
			b.set("HealthCheck", in.get("HealthCheck"))
			out := &tree{}
			out.set("HealthCheck", in.get("HealthCheck"))
			return out, nil
		}),
		"RegisterInstancesWithLoadBalancer": c.on(func(b, in *tree) (*tree, error) {
			machines := b.get("Instances")
			machines.add(in.get("Instances").items()...)
			b.set("Instances", machines)
			return wrap("Instances", machines.items()...), nil
		}),
		"DeregisterInstancesFromLoadBalancer": c.on(func(b, in *tree) (*tree, error) {
			machines := b.get("Instances")
			for _, gone := range in.get("Instances").items() {
				machines.drop(func(m *tree) bool { return m.str("InstanceId") == gone.str("InstanceId") })
			}
			b.set("Instances", machines)
			return wrap("Instances", machines.items()...), nil
		}),
		"DescribeLoadBalancerAttributes": c.on(func(b, _ *tree) (*tree, error) {
			out := &tree{}
			out.set("LoadBalancerAttributes", b.get("Attributes"))
			return out, nil
		}),
		"ModifyLoadBalancerAttributes": c.on(func(b, in *tree) (*tree, error) {
			attributes := b.get("Attributes")
			attributes.merge(in.get("LoadBalancerAttributes"))
			b.set("Attributes", attributes)
			return &tree{}, nil
		}),
		"ApplySecurityGroupsToLoadBalancer": c.on(func(b, in *tree) (*tree, error) {
			b.set("SecurityGroups", in.get("SecurityGroups"))
			return wrap("SecurityGroups", in.get("SecurityGroups").items()...), nil
		}),
		"AddTags": func(in *tree) (*tree, error) {
			for _, name := range in.get("LoadBalancerNames").texts() {
				b, err := c.balancer(name)
				if err != nil {
					return nil, err
				}
				setTags(b, in.get("Tags").items())
			}
			return &tree{}, nil
		},
	})
	return actions
}

// policing are those for the policies of one.
func (c *cloud) policing() map[string]action {
	return map[string]action{
		"CreateLoadBalancerPolicy": c.on(func(b, in *tree) (*tree, error) {
			p := node("PolicyName", in.str("PolicyName"), "PolicyTypeName", in.str("PolicyTypeName"))
			p.set("PolicyAttributeDescriptions", in.get("PolicyAttributes"))
			of := b.str("LoadBalancerName")
			c.policies[of] = append(c.policies[of], p)
			return &tree{}, nil
		}),
		"DescribeLoadBalancerPolicies": c.on(func(b, in *tree) (*tree, error) {
			found := with(c.policies[b.str("LoadBalancerName")], "PolicyName", in.get("PolicyNames").texts())
			if len(found) == 0 {
				return nil, refuse("PolicyNotFound", "there is no such policy")
			}
			return wrap("PolicyDescriptions", found...), nil
		}),
		"SetLoadBalancerPoliciesOfListener": c.on(func(b, in *tree) (*tree, error) {
			for _, l := range b.get("ListenerDescriptions").items() {
				if l.str("Listener.LoadBalancerPort") == in.str("LoadBalancerPort") {
					l.set("PolicyNames", in.get("PolicyNames"))
				}
			}
			return &tree{}, nil
		}),
		"SetLoadBalancerPoliciesForBackendServer": c.on(func(b, in *tree) (*tree, error) {
			backends := b.get("BackendServerDescriptions")
			backends.drop(func(s *tree) bool { return s.str("InstancePort") == in.str("InstancePort") })
			if names := in.get("PolicyNames"); len(names.items()) > 0 {
				s := node("InstancePort", in.str("InstancePort"))
				s.set("PolicyNames", names)
				backends.add(s)
			}
			b.set("BackendServerDescriptions", backends)
			return &tree{}, nil
		}),
	}
}

func (c *cloud) balancer(name string) (*tree, error) {
	if found := with(c.balancers, "LoadBalancerName", []string{name}); len(found) == 1 {
		return found[0], nil
	}
	return nil, refuse("LoadBalancerNotFound", "There is no ACTIVE Load Balancer named '%s'", name)
}

func setTags(t *tree, tags []*tree) {
	all := t.get("Tags")
	for _, tag := range tags {
		all.drop(func(old *tree) bool { return old.str("Key") == tag.str("Key") })
		all.add(tag)
	}
	t.set("Tags", all)
}

func (c *cloud) createBalancer(in *tree) (*tree, error) {
	scheme := in.str("Scheme")
	if scheme == "" {
		scheme = "internet-facing"
	}
	name := fmt.Sprintf("classic-%d.%s.elb.amazonaws.com", len(c.balancers)+1, region)
	b := node("LoadBalancerName", in.str("LoadBalancerName"), "DNSName", name, "Scheme", scheme, "VPCId", network, "SourceSecurityGroup.GroupName", "default",
		"Attributes.AccessLog.Enabled", "false", "Attributes.ConnectionDraining.Enabled", "false", "Attributes.CrossZoneLoadBalancing.Enabled", "false", "Attributes.ConnectionSettings.IdleTimeout", "60",
		"HealthCheck.Target", "TCP:80", "HealthCheck.Interval", "30", "HealthCheck.Timeout", "5", "HealthCheck.HealthyThreshold", "10", "HealthCheck.UnhealthyThreshold", "2")
	b.set("Subnets", in.get("Subnets"))
	b.set("SecurityGroups", in.get("SecurityGroups"))
	setTags(b, in.get("Tags").items())
	listen(b, in.get("Listeners"))
	c.balancers = append(c.balancers, b)
	return node("DNSName", name), nil
}

func listen(b, listeners *tree) {
	all := b.get("ListenerDescriptions")
	for _, l := range listeners.items() {
		for _, field := range []string{"Protocol", "InstanceProtocol"} { // told in capitals, however they were asked for
			l.set(field, leaf(strings.ToUpper(l.str(field))))
		}
		d := &tree{}
		d.set("Listener", l)
		all.add(d)
	}
	b.set("ListenerDescriptions", all)
}

// showBalancers says what there is of each balancer, by the Service that it is of.
func (c *cloud) showBalancers() (out []string) {
	groups := func(b *tree) string {
		var names []string
		for _, id := range b.get("SecurityGroups").texts() {
			if g, err := c.group(id); err == nil {
				id = called(g)
			}
			names = append(names, id)
		}
		return "  packet filters: " + strings.Join(names, ", ")
	}
	tags := func(b *tree) string {
		var said []string
		for _, tag := range b.get("Tags").items() {
			said = append(said, tag.str("Key")+"="+tag.str("Value"))
		}
		slices.Sort(said)
		return "  tags: " + strings.Join(said, " ")
	}
	for _, b := range c.balancers {
		out = append(out, "classic balancer of "+tagged(b, "kubernetes.io/service-name")+", "+b.str("Scheme"))
		for _, l := range b.get("ListenerDescriptions").items() {
			line := fmt.Sprintf("  %s %s to %s %s", l.str("Listener.Protocol"), l.str("Listener.LoadBalancerPort"), l.str("Listener.InstanceProtocol"), l.str("Listener.InstancePort"))
			if of := l.str("Listener.SSLCertificateId"); of != "" {
				line += " with " + of
			}
			if of := l.get("PolicyNames").texts(); len(of) > 0 {
				line += " by " + strings.Join(of, " ")
			}
			out = append(out, line)
		}
		for _, s := range b.get("BackendServerDescriptions").items() {
			out = append(out, "  to "+s.str("InstancePort")+" by "+strings.Join(s.get("PolicyNames").texts(), " "))
		}
		h := b.get("HealthCheck")
		out = append(out, fmt.Sprintf("  checks %s every %s s, for %s s, %s times up, %s down", h.str("Target"), h.str("Interval"), h.str("Timeout"), h.str("HealthyThreshold"), h.str("UnhealthyThreshold")))
		out = append(out, "  attributes: "+strings.Join(b.get("Attributes").lines(""), ", "), groups(b), tags(b))
		var machines []string
		for _, m := range b.get("Instances").items() {
			machines = append(machines, m.str("InstanceId"))
		}
		slices.Sort(machines)
		out = append(out, "  machines: "+strings.Join(machines, " "))
	}
	for _, b := range c.networks {
		out = append(out, "network balancer of "+tagged(b, "kubernetes.io/service-name")+", "+b.str("Scheme"))
		for _, l := range with(c.listeners, "LoadBalancerArn", []string{b.str("LoadBalancerArn")}) {
			line := fmt.Sprintf("  %s %s", l.str("Protocol"), l.str("Port"))
			for _, g := range with(c.targets, "TargetGroupArn", []string{l.str("DefaultActions.1.TargetGroupArn")}) {
				var machines []string
				for _, m := range g.get("Targets").items() {
					machines = append(machines, m.str("Id"))
				}
				slices.Sort(machines)
				line += fmt.Sprintf(" to %s %s of %s, checked by %s %s every %s s", g.str("Protocol"), g.str("Port"), strings.Join(machines, " "), g.str("HealthCheckProtocol"), g.str("HealthCheckPort"), g.str("HealthCheckIntervalSeconds"))
			}
			out = append(out, line)
		}
		out = append(out, "  attributes: "+strings.Join(b.get("Attributes").lines(""), ", "), tags(b))
	}
	return out
}
