package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

const (
	region  = "eu-west-1"
	zone    = "eu-west-1a"
	network = "vpc-1"
	subnet  = "subnet-1"
	owner   = "kubernetes.io/cluster/garden"
)

// newCloud has two machines in a network with one subnet, which a gateway leads out of, and a packet filter.
func newCloud() *cloud {
	c := &cloud{policies: map[string][]*tree{}}
	for i, kind := range []string{"t3.small", "m5.large"} {
		id := fmt.Sprintf("i-%d", i+1)
		address := fmt.Sprintf("10.0.0.%d", i+11)
		m := node("InstanceId", id, "InstanceType", kind, "PrivateIpAddress", address, "IpAddress", fmt.Sprintf("203.0.113.%d", i+11), "VpcId", network, "SubnetId", subnet,
			"PrivateDnsName", fmt.Sprintf("ip-10-0-0-%d.%s.compute.internal", i+11, region), "DnsName", fmt.Sprintf("machine-%d.example.com", i+1),
			"InstanceState.Code", "16", "InstanceState.Name", "running", "Placement.AvailabilityZone", zone, "SourceDestCheck", "true", "EnaSupport", "true")
		m.set("GroupSet", list(node("GroupId", "sg-nodes", "GroupName", "nodes")))
		m.set("TagSet", list(node("Key", owner, "Value", "owned")))
		m.set("NetworkInterfaceSet", list(node("NetworkInterfaceId", fmt.Sprintf("eni-%d", i+1), "PrivateIpAddress", address, "Status", "in-use", "Attachment.DeviceIndex", "0",
			"PrivateIpAddressesSet.1.PrivateIpAddress", address, "PrivateIpAddressesSet.1.Primary", "true")))
		c.machines = append(c.machines, m)
	}
	s := node("SubnetId", subnet, "VpcId", network, "AvailabilityZone", zone, "CidrBlock", "10.0.0.0/24", "State", "available")
	s.set("TagSet", list(node("Key", owner, "Value", "shared")))
	c.subnets = []*tree{s}
	r := node("RouteTableId", "rtb-1", "VpcId", network)
	r.set("AssociationSet", list(node("RouteTableAssociationId", "rtbassoc-1", "RouteTableId", "rtb-1", "SubnetId", subnet, "Main", "true")))
	r.set("RouteSet", list(node("DestinationCidrBlock", "0.0.0.0/0", "GatewayId", "igw-1", "State", "active")))
	r.set("TagSet", list(node("Key", owner, "Value", "owned")))
	c.routes = []*tree{r}
	g := node("GroupId", "sg-nodes", "GroupName", "nodes", "GroupDescription", "nodes", "VpcId", network)
	g.set("TagSet", list(node("Key", owner, "Value", "owned")))
	c.groups = []*tree{g}
	return c
}

func (c *cloud) computing() map[string]action {
	return map[string]action{
		"DescribeInstances":         c.describeMachines,
		"DescribeInstanceTopology":  func(*tree) (*tree, error) { return &tree{}, nil },
		"DescribeAvailabilityZones": func(*tree) (*tree, error) { return c.zones(), nil },
		"DescribeVpcs": func(*tree) (*tree, error) {
			return wrap("VpcSet", node("VpcId", network, "CidrBlock", "10.0.0.0/16", "State", "available")), nil
		},
		"DescribeSubnets":               func(in *tree) (*tree, error) { return filtered(in, "SubnetSet", c.subnets, "SubnetId") },
		"DescribeRouteTables":           func(in *tree) (*tree, error) { return filtered(in, "RouteTableSet", c.routes, "RouteTableId") },
		"DescribeSecurityGroups":        c.describeGroups,
		"CreateSecurityGroup":           c.createGroup,
		"DeleteSecurityGroup":           c.deleteGroup,
		"AuthorizeSecurityGroupIngress": c.letIn,
		"RevokeSecurityGroupIngress":    c.letInNoMore,
		"CreateTags":                    c.tag,
	}
}

func wrap(name string, items ...*tree) *tree {
	t := &tree{}
	t.set(name, list(items...))
	return t
}

func (c *cloud) zones() *tree {
	return wrap("AvailabilityZoneInfo", node("ZoneName", zone, "ZoneId", "euw1-az1", "ZoneState", "available", "ZoneType", "availability-zone", "RegionName", region))
}

func (c *cloud) describeMachines(in *tree) (*tree, error) {
	for _, id := range in.get("InstanceId").texts() {
		if len(with(c.machines, "InstanceId", []string{id})) == 0 {
			return nil, refuse("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", id)
		}
	}
	found, err := filter(in, with(c.machines, "InstanceId", in.get("InstanceId").texts()))
	if err != nil {
		return nil, err
	}
	r := node("ReservationId", "r-1", "OwnerId", "1")
	r.set("InstancesSet", list(found...))
	return wrap("ReservationSet", r), nil
}

// end ends a machine.
func (c *cloud) end(_ http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.machines = slices.DeleteFunc(c.machines, func(m *tree) bool { return m.str("InstanceId") == r.PathValue("id") })
}

// filtered are those that a request asks for, by its IDs and its filters.
func filtered(in *tree, set string, all []*tree, id string) (*tree, error) {
	found, err := filter(in, with(all, id, in.get(id).texts()))
	return wrap(set, found...), err
}

// filter leaves out what the filters of a request do.
func filter(in *tree, all []*tree) ([]*tree, error) {
	for _, f := range in.get("Filter").items() {
		name, values := f.str("Name"), f.get("Value").texts()
		var is func(t *tree) bool
		fields := map[string]string{
			"vpc-id": "VpcId", "subnet-id": "SubnetId", "group-id": "GroupId", "group-name": "GroupName", "instance-state-name": "InstanceState.Name", "private-dns-name": "PrivateDnsName",
		}
		key, ofTag := strings.CutPrefix(name, "tag:")
		switch field, known := fields[name]; {
		case known:
			is = func(t *tree) bool { return slices.Contains(values, t.str(field)) }
		case ofTag:
			is = func(t *tree) bool { return slices.Contains(values, tagged(t, key)) }
		case name == "tag-key":
			is = func(t *tree) bool {
				return slices.ContainsFunc(values, func(key string) bool { return tagged(t, key) != "" })
			}
		case name == "ip-permission.group-id":
			is = func(t *tree) bool {
				return slices.ContainsFunc(t.get("IpPermissions").items(), func(p *tree) bool {
					return slices.ContainsFunc(p.get("Groups").items(), func(g *tree) bool { return slices.Contains(values, g.str("GroupId")) })
				})
			}
		default:
			return nil, refuse("InvalidParameterValue", "the stand-in knows no filter %s", name)
		}
		all = slices.DeleteFunc(slices.Clone(all), func(t *tree) bool { return !is(t) })
	}
	return all, nil
}

func (c *cloud) group(id string) (*tree, error) {
	if found := with(c.groups, "GroupId", []string{id}); len(found) == 1 {
		return found[0], nil
	}
	return nil, refuse("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
}

func (c *cloud) describeGroups(in *tree) (*tree, error) {
	for _, id := range in.get("GroupId").texts() {
		if _, err := c.group(id); err != nil {
			return nil, err
		}
	}
	return filtered(in, "SecurityGroupInfo", c.groups, "GroupId")
}

func (c *cloud) createGroup(in *tree) (*tree, error) {
	g := node("GroupId", c.name("sg"), "GroupName", in.str("GroupName"), "GroupDescription", in.str("GroupDescription"), "VpcId", in.str("VpcId"))
	g.set("TagSet", in.get("TagSpecification.1.Tag"))
	c.groups = append(c.groups, g)
	return node("GroupId", g.str("GroupId")), nil
}

func (c *cloud) deleteGroup(in *tree) (*tree, error) {
	id := in.str("GroupId")
	g, err := c.group(id)
	if err != nil {
		return nil, err
	}
	for _, b := range append(slices.Clone(c.balancers), c.networks...) {
		if slices.Contains(b.get("SecurityGroups").texts(), id) {
			return nil, refuse("DependencyViolation", "resource %s has a dependent object", id)
		}
	}
	c.groups = slices.DeleteFunc(c.groups, func(t *tree) bool { return t == g })
	return &tree{}, nil
}

// sources are those that a rule lets in, each a rule of its own: the cloud keeps them so.
func sources(rule *tree) (out []*tree) {
	for _, of := range []string{"IpRanges", "Ipv6Ranges", "Groups"} {
		for _, source := range rule.get(of).items() {
			r := node("IpProtocol", rule.str("IpProtocol"))
			for _, port := range []string{"FromPort", "ToPort"} { // all ports have none
				if rule.str(port) != "" {
					r.set(port, rule.get(port))
				}
			}
			r.set(of, list(source))
			out = append(out, r)
		}
	}
	return out
}

// said is a rule as a line, without the words that describe it.
func said(rule *tree) string {
	return strings.Join(slices.DeleteFunc(rule.lines(""), func(l string) bool { return strings.Contains(l, ".Description ") || strings.Contains(l, ".UserId ") }), " ")
}

func (c *cloud) letIn(in *tree) (*tree, error) {
	g, err := c.group(in.str("GroupId"))
	if err != nil {
		return nil, err
	}
	rules := g.get("IpPermissions")
	for _, asked := range in.get("IpPermissions").items() {
		for _, rule := range sources(asked) {
			if slices.ContainsFunc(rules.items(), func(r *tree) bool { return said(r) == said(rule) }) {
				return nil, refuse("InvalidPermission.Duplicate", "the specified rule %q already exists", said(rule))
			}
			rules.add(rule)
		}
	}
	g.set("IpPermissions", rules)
	return node("Return", "true"), nil
}

func (c *cloud) letInNoMore(in *tree) (*tree, error) {
	g, err := c.group(in.str("GroupId"))
	if err != nil {
		return nil, err
	}
	rules := g.get("IpPermissions")
	for _, asked := range in.get("IpPermissions").items() {
		for _, rule := range sources(asked) {
			rules.drop(func(r *tree) bool { return said(r) == said(rule) })
		}
	}
	g.set("IpPermissions", rules)
	return node("Return", "true"), nil
}

func (c *cloud) tag(in *tree) (*tree, error) {
	for _, id := range in.get("ResourceId").texts() {
		g, err := c.group(id)
		if err != nil {
			return nil, err
		}
		tags := g.get("TagSet")
		tags.add(in.get("Tag").items()...)
		g.set("TagSet", tags)
	}
	return node("Return", "true"), nil
}

func (c *cloud) showGroups() (out []string) {
	for _, g := range c.groups {
		out = append(out, "packet filter "+called(g))
		var lines []string
		for _, rule := range g.get("IpPermissions").items() {
			ports := rule.str("IpProtocol")
			if from, to := rule.str("FromPort"), rule.str("ToPort"); from != to {
				ports += " " + from + "-" + to
			} else if from != "" {
				ports += " " + from
			}
			from := rule.str("IpRanges.1.CidrIp")
			if of, err := c.group(rule.str("Groups.1.GroupId")); err == nil {
				from = called(of)
			}
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("  %s from %s %s", ports, from, rule.str("IpRanges.1.Description"))))
		}
		slices.Sort(lines)
		for _, line := range lines {
			out = append(out, "  "+line)
		}
	}
	return out
}

// called is what a packet filter is called: by the Service that it is of, if it is of one.
func called(g *tree) string {
	if _, of, ok := strings.Cut(g.str("GroupDescription"), "("); ok {
		return "of " + strings.TrimSuffix(of, ")")
	}
	return g.str("GroupName")
}
