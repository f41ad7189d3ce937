package main

import (
	"fmt"
	"maps"
	"slices"
)

// networking are the calls for network balancers.
func (c *cloud) networking() map[string]action {
	actions := c.targeting()
	maps.Copy(actions, map[string]action{
		"CreateLoadBalancer": c.createNetwork,
		"DeleteLoadBalancer": func(in *tree) (*tree, error) {
			arn := in.str("LoadBalancerArn")
			c.networks = without(c.networks, "LoadBalancerArn", arn)
			c.listeners = without(c.listeners, "LoadBalancerArn", arn)
			return &tree{}, nil
		},
		"DescribeLoadBalancers": func(in *tree) (*tree, error) {
			found := with(with(c.networks, "LoadBalancerName", in.get("Names").texts()), "LoadBalancerArn", in.get("LoadBalancerArns").texts())
			if len(found) == 0 && len(in.get("Names").texts())+len(in.get("LoadBalancerArns").texts()) > 0 {
				return nil, refuse("LoadBalancerNotFound", "One or more load balancers not found")
			}
			return wrap("LoadBalancers", found...), nil
		},
		"DescribeLoadBalancerAttributes": func(in *tree) (*tree, error) {
			b, err := one(c.networks, "LoadBalancer", in)
			if err != nil {
				return nil, err
			}
			return pairs(b.get("Attributes")), nil
		},
		"ModifyLoadBalancerAttributes": func(in *tree) (*tree, error) {
			b, err := one(c.networks, "LoadBalancer", in)
			if err != nil {
				return nil, err
			}
			return attribute(b, in), nil
		},
		"CreateListener": func(in *tree) (*tree, error) {
			l := node("ListenerArn", c.arn("listener"), "LoadBalancerArn", in.str("LoadBalancerArn"), "Port", in.str("Port"), "Protocol", in.str("Protocol"))
			l.set("DefaultActions", in.get("DefaultActions"))
			c.listeners = append(c.listeners, l)
			return wrap("Listeners", l), nil
		},
		"DeleteListener": func(in *tree) (*tree, error) {
			c.listeners = without(c.listeners, "ListenerArn", in.str("ListenerArn"))
			return &tree{}, nil
		},
		"DescribeListeners": func(in *tree) (*tree, error) {
			return wrap("Listeners", with(c.listeners, "LoadBalancerArn", []string{in.str("LoadBalancerArn")})...), nil
		},
	})
	return actions
}

// targeting are those for where they lead.
func (c *cloud) targeting() map[string]action {
	return map[string]action{
		"CreateTargetGroup": c.createTargets,
		"DeleteTargetGroup": func(in *tree) (*tree, error) {
			arn := in.str("TargetGroupArn")
			if slices.ContainsFunc(c.listeners, func(l *tree) bool { return l.str("DefaultActions.1.TargetGroupArn") == arn }) {
				return nil, refuse("ResourceInUse", "Target group '%s' is currently in use by a listener or a rule", arn)
			}
			c.targets = without(c.targets, "TargetGroupArn", arn)
			return &tree{}, nil
		},
		"DescribeTargetGroups": c.describeTargets,
		"ModifyTargetGroup": func(in *tree) (*tree, error) {
			g, err := one(c.targets, "TargetGroup", in)
			if err != nil {
				return nil, err
			}
			for _, field := range in.names() {
				if field != "Action" && field != "Version" {
					g.set(field, in.get(field))
				}
			}
			return wrap("TargetGroups", g), nil
		},
		"DescribeTargetGroupAttributes": func(in *tree) (*tree, error) {
			g, err := one(c.targets, "TargetGroup", in)
			if err != nil {
				return nil, err
			}
			return pairs(g.get("Attributes")), nil
		},
		"ModifyTargetGroupAttributes": func(in *tree) (*tree, error) {
			g, err := one(c.targets, "TargetGroup", in)
			if err != nil {
				return nil, err
			}
			return attribute(g, in), nil
		},
		"DescribeTargetHealth": func(in *tree) (*tree, error) {
			g, err := one(c.targets, "TargetGroup", in)
			if err != nil {
				return nil, err
			}
			var out []*tree
			for _, m := range g.get("Targets").items() {
				out = append(out, node("Target.Id", m.str("Id"), "Target.Port", m.str("Port"), "TargetHealth.State", "healthy"))
			}
			return wrap("TargetHealthDescriptions", out...), nil
		},
		"RegisterTargets": func(in *tree) (*tree, error) {
			g, err := one(c.targets, "TargetGroup", in)
			if err != nil {
				return nil, err
			}
			all := g.get("Targets")
			all.add(in.get("Targets").items()...)
			g.set("Targets", all)
			return &tree{}, nil
		},
		"DeregisterTargets": func(in *tree) (*tree, error) {
			g, err := one(c.targets, "TargetGroup", in)
			if err != nil {
				return nil, err
			}
			all := g.get("Targets")
			for _, gone := range in.get("Targets").items() {
				all.drop(func(m *tree) bool { return m.str("Id") == gone.str("Id") })
			}
			g.set("Targets", all)
			return &tree{}, nil
		},
	}
}

func (c *cloud) arn(kind string) string {
	return fmt.Sprintf("arn:aws:elasticloadbalancing:%s:1:%s/%s", region, kind, c.name(kind))
}

func without(all []*tree, field, value string) []*tree {
	return slices.DeleteFunc(all, func(t *tree) bool { return t.str(field) == value })
}

// one is the one of a kind that a request names.
func one(all []*tree, kind string, in *tree) (*tree, error) {
	if found := with(all, kind+"Arn", []string{in.str(kind + "Arn")}); len(found) == 1 {
		return found[0], nil
	}
	return nil, refuse(kind+"NotFound", "there is no %s", in.str(kind+"Arn"))
}

// Attributes are kept by name, whose dots are part of it, and told as pairs.
func pairs(attributes *tree) *tree {
	var out []*tree
	for _, name := range attributes.names() {
		out = append(out, node("Key", name, "Value", attributes.kids[name].text))
	}
	return wrap("Attributes", out...)
}

func attribute(t, in *tree) *tree {
	all := t.get("Attributes")
	for _, a := range in.get("Attributes").items() {
		all.kids[a.str("Key")] = leaf(a.str("Value"))
	}
	return pairs(all)
}

func (c *cloud) createNetwork(in *tree) (*tree, error) {
	scheme := in.str("Scheme")
	if scheme == "" {
		scheme = "internet-facing"
	}
	b := node("LoadBalancerArn", c.arn("loadbalancer"), "LoadBalancerName", in.str("Name"), "DNSName", fmt.Sprintf("network-%d.elb.%s.amazonaws.com", len(c.networks)+1, region), "Type", in.str("Type"),
		"Scheme", scheme, "VpcId", network, "State.Code", "active")
	var zones []*tree
	for _, m := range in.get("SubnetMappings").items() {
		zones = append(zones, node("SubnetId", m.str("SubnetId"), "ZoneName", zone))
	}
	b.set("AvailabilityZones", list(zones...))
	b.set("SecurityGroups", in.get("SecurityGroups"))
	b.set("Attributes", &tree{kids: map[string]*tree{"load_balancing.cross_zone.enabled": leaf("false"), "access_logs.s3.enabled": leaf("false"), "access_logs.s3.bucket": leaf(""), "access_logs.s3.prefix": leaf("")}})
	setTags(b, in.get("Tags").items())
	c.networks = append(c.networks, b)
	return wrap("LoadBalancers", b), nil
}

func (c *cloud) createTargets(in *tree) (*tree, error) {
	g := node("TargetGroupArn", c.arn("targetgroup"))
	for _, field := range in.names() {
		if field != "Action" && field != "Version" && field != "Name" {
			g.set(field, in.get(field))
		}
	}
	g.set("TargetGroupName", leaf(in.str("Name")))
	g.set("Attributes", &tree{kids: map[string]*tree{"preserve_client_ip.enabled": leaf("true"), "proxy_protocol_v2.enabled": leaf("false")}})
	c.targets = append(c.targets, g)
	return wrap("TargetGroups", g), nil
}

func (c *cloud) describeTargets(in *tree) (*tree, error) {
	found := with(with(c.targets, "TargetGroupName", in.get("Names").texts()), "TargetGroupArn", in.get("TargetGroupArns").texts())
	if arn := in.str("LoadBalancerArn"); arn != "" {
		used := with(c.listeners, "LoadBalancerArn", []string{arn})
		found = slices.DeleteFunc(found, func(g *tree) bool {
			return !slices.ContainsFunc(used, func(l *tree) bool { return l.str("DefaultActions.1.TargetGroupArn") == g.str("TargetGroupArn") })
		})
	} else if len(found) == 0 {
		return nil, refuse("TargetGroupNotFound", "One or more target groups not found")
	}
	return wrap("TargetGroups", found...), nil
}
