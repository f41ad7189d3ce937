package san

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// ISCSI is a disk of an iSCSI target.
type ISCSI struct {
	Portals   []string `json:"portals"` // addresses with ports; more than one: ways to the same disk
	IQN       string   `json:"iqn"`
	LUN       int32    `json:"lun"`
	Interface string   `json:"iface"`
	Initiator string   `json:"initiatorName,omitempty"` // as whom the machine comes; it has an interface of its own for that
	Like      string   `json:"like,omitempty"`          // the interface that that one is made from
	Discovery bool     `json:"chapAuthDiscovery,omitempty"`
	Session   bool     `json:"chapAuthSession,omitempty"`
}

// defaultPort is where portals listen.
const defaultPort = "3260"

func ofISCSI(volume string, s *v1.ISCSIPersistentVolumeSource) *ISCSI {
	d := &ISCSI{IQN: s.IQN, LUN: s.Lun, Interface: cmp.Or(s.ISCSIInterface, "default"), Discovery: s.DiscoveryCHAPAuth, Session: s.SessionCHAPAuth}
	for _, portal := range append([]string{s.TargetPortal}, s.Portals...) {
		if portal = withPort(portal); !slices.Contains(d.Portals, portal) {
			d.Portals = append(d.Portals, portal)
		}
	}
	if s.InitiatorName != nil && *s.InitiatorName != "" {
		d.Initiator, d.Like = *s.InitiatorName, d.Interface
		d.Interface = s.TargetPortal + ":" + volume
	}
	return d
}

// withPort is an address of a portal with its port.
func withPort(portal string) string {
	if _, _, err := net.SplitHostPort(portal); err == nil {
		return portal
	}
	if ip, err := netip.ParseAddr(strings.Trim(portal, "[]")); err == nil {
		return net.JoinHostPort(ip.String(), defaultPort)
	}
	return portal + ":" + defaultPort
}

func (d *ISCSI) name() string {
	return d.Portals[0] + "-" + d.IQN + "-lun-" + strconv.Itoa(int(d.LUN))
}

// iscsiPaths are the paths to the disk that are there, by all of its portals: those of cards that do the work themselves have
// the cards' places before the rest.
func (m Machine) iscsiPaths(d *ISCSI) (paths []string) {
	for _, portal := range d.Portals {
		paths = append(paths, m.pathsBy(d, portal)...)
	}
	return paths
}

func (m Machine) pathsBy(d *ISCSI, portal string) []string {
	for _, address := range []string{portal, strings.NewReplacer("[", "", "]", "").Replace(portal)} { // as udev is
		name := fmt.Sprintf("ip-%s-iscsi-%s-lun-%d", strings.NewReplacer("[", `\[`, "]", `\]`).Replace(address), d.IQN, d.LUN)
		for _, pattern := range []string{name, "pci-*-" + name} {
			found, err := filepath.Glob(m.path("dev/disk/by-path", pattern))
			if found = there(found); err == nil && len(found) > 0 {
				return found
			}
		}
	}
	return nil
}

// attachISCSI logs in at each portal of the disk; one is enough.
func (m Machine) attachISCSI(ctx context.Context, d *ISCSI, secrets map[string]string) (paths []string, err error) {
	if d.Initiator != "" {
		if err := m.ownInterface(ctx, d); err != nil {
			return nil, err
		}
	}
	var errs []error
	for _, portal := range d.Portals {
		if err := m.login(ctx, d, portal, secrets); err != nil {
			errs = append(errs, err)
			continue
		}
		found, err := m.appear(ctx, "disk/by-path", func() []string { return m.pathsBy(d, portal) })
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("could not attach disk: Timeout after %v", patience)
		}
		if err != nil {
			errs = append(errs, err)
		}
		paths = append(paths, found...)
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("failed to get any path for iscsi disk, last err seen:\n%w", errors.Join(errs...))
	}
	return paths, nil
}

// ownInterface makes an interface like another one, but by which the machine has another name.
func (m Machine) ownInterface(ctx context.Context, d *ISCSI) error {
	shown, err := m.iscsiadm(ctx, onInterface(d.Like), "-o", "show")
	if err != nil {
		return fmt.Errorf("look at iSCSI interface %s: %w", d.Like, err)
	}
	own := onInterface(d.Interface)
	if _, err := m.iscsiadm(ctx, own, "-o", "show"); absent(err) {
		if _, err := m.iscsiadm(ctx, own, "-o", "new"); err != nil {
			return fmt.Errorf("make iSCSI interface %s: %w", d.Interface, err)
		}
	}
	settings := [][2]string{{"iface.initiatorname", d.Initiator}}
	for line := range strings.Lines(shown) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), " = ")
		switch {
		case !ok || strings.HasPrefix(key, "#") || value == "<empty>", key == "iface.iscsi_ifacename", key == "iface.initiatorname":
		default:
			settings = append(settings, [2]string{key, value})
		}
	}
	for _, s := range settings {
		if _, err := m.iscsiadm(ctx, own, "-o", "update", "-n", s[0], "-v", s[1]); err != nil {
			return errors.Join(fmt.Errorf("set %s of iSCSI interface %s: %w", s[0], d.Interface, err), m.dropInterface(ctx, d))
		}
	}
	return nil
}

func (m Machine) dropInterface(ctx context.Context, d *ISCSI) error {
	if err := m.drop(ctx, onInterface(d.Interface), "-o", "delete"); err != nil {
		return fmt.Errorf("remove iSCSI interface %s: %w", d.Interface, err)
	}
	return nil
}

func onInterface(name string) []string { return []string{"-m", "iface", "-I", name} }

// onNode is the disk's target by a portal.
func (d *ISCSI) onNode(portal string) []string {
	return []string{"-m", "node", "-p", portal, "-T", d.IQN, "-I", d.Interface}
}

// login has the machine in a session with the portal in which it has looked for the disk.
func (m Machine) login(ctx context.Context, d *ISCSI, portal string, secrets map[string]string) error {
	if host := m.session(d, portal); host != "" {
		return m.scan(host, d.LUN)
	}
	if err := m.discover(ctx, d, portal, secrets); err != nil {
		return err
	}
	node := d.onNode(portal)
	if d.Session {
		if err := m.showSecrets(ctx, slices.Concat(node, []string{"-o", "update"}), "node.session.auth.", secrets); err != nil {
			return fmt.Errorf("failed to update iscsi node with CHAP: %w", err)
		}
	}
	// Of a target that has more disks only those are looked for that are wanted; where the tools are too old for that, all are.
	_, all := m.iscsiadm(ctx, node, "-o", "update", "-n", "node.session.scan", "-v", "manual")
	if _, err := m.iscsiadm(ctx, node, "--login"); err != nil {
		return errors.Join(fmt.Errorf("failed to attach disk: %w", err), m.drop(ctx, node, "-o", "delete"))
	}
	// Who starts the machine anew does not wait for targets that may be away: pods ask for them.
	if _, err := m.iscsiadm(ctx, node, "-o", "update", "-n", "node.startup", "-v", "manual"); err != nil {
		return fmt.Errorf("failed to set node to manual startup: %w", err)
	}
	if all != nil {
		return nil
	}
	return m.scan(m.session(d, portal), d.LUN)
}

// discover has the machine know what targets there are at the portal.
func (m Machine) discover(ctx context.Context, d *ISCSI, portal string, secrets map[string]string) error {
	db := []string{"-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", d.Interface}
	_, err := m.iscsiadm(ctx, db, "-o", "new")
	if err == nil && d.Discovery {
		err = m.showSecrets(ctx, slices.Concat(db, []string{"-o", "update"}), "discovery.sendtargets.auth.", secrets)
	}
	if err == nil {
		_, err = m.iscsiadm(ctx, db, "--discover")
	}
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("failed to sendtargets to portal %s: %w", portal, err), m.drop(ctx, db, "-o", "delete"))
}

// showSecrets has the machine show those of the secrets whose names begin with prefix.
func (m Machine) showSecrets(ctx context.Context, update []string, prefix string, secrets map[string]string) error {
	set := func(name, value string) error {
		_, err := m.iscsiadm(ctx, update, "-n", name, "-v", value)
		return err
	}
	if err := set(prefix+"authmethod", "CHAP"); err != nil {
		return err
	}
	for _, name := range []string{"username", "password", "username_in", "password_in"} {
		if value := secrets[prefix+name]; value != "" {
			if err := set(prefix+name, value); err != nil {
				return fmt.Errorf("%s%s: %w", prefix, name, err)
			}
		}
	}
	return nil
}

// session is the host, as the kernel names it, of the session with the target by the portal and the interface; empty: there is none.
func (m Machine) session(d *ISCSI, portal string) string {
	address, port, err := net.SplitHostPort(portal)
	if err != nil {
		return ""
	}
	is := func(file, want string) bool {
		data, err := os.ReadFile(file)
		return err == nil && strings.TrimSpace(string(data)) == want
	}
	sessions, _ := filepath.Glob(m.path("sys/class/iscsi_session/session*")) // fails for bad patterns alone
	for _, s := range sessions {
		number := strings.TrimPrefix(filepath.Base(s), "session")
		connection := m.path("sys/class/iscsi_connection", "connection"+number+":0")
		if !is(filepath.Join(s, "targetname"), d.IQN) || !is(filepath.Join(s, "ifacename"), d.Interface) ||
			!is(filepath.Join(connection, "persistent_address"), address) || !is(filepath.Join(connection, "persistent_port"), port) {
			continue
		}
		at, err := filepath.EvalSymlinks(s)
		if err != nil {
			continue // it has just gone
		}
		for part := range strings.SplitSeq(at, "/") {
			if rest, ok := strings.CutPrefix(part, "host"); ok && rest != "" && strings.Trim(rest, "0123456789") == "" {
				return part
			}
		}
	}
	return ""
}

// scan has a host look for a disk of its target.
func (m Machine) scan(host string, lun int32) error {
	if host == "" {
		return errors.New("the session is not there though its login succeeded")
	}
	if err := write(m.path("sys/class/scsi_host", host, "scan"), fmt.Sprintf("0 0 %d", lun)); err != nil {
		return fmt.Errorf("have %s look for the disk: %w", host, err)
	}
	return nil
}

// detachISCSI ends the sessions of the disk, or removes the disk alone from those that others need.
func (m Machine) detachISCSI(ctx context.Context, d *ISCSI, others []*Disk) error {
	for _, portal := range d.Portals {
		if slices.ContainsFunc(others, func(other *Disk) bool {
			o := other.ISCSI
			return o != nil && o.IQN == d.IQN && o.Interface == d.Interface && slices.Contains(o.Portals, portal)
		}) {
			if err := m.remove(m.pathsBy(d, portal)); err != nil {
				return err
			}
			continue
		}
		node := d.onNode(portal)
		for _, end := range [][]string{{"--logout"}, {"-o", "delete"}} {
			if err := m.drop(ctx, node, end...); err != nil {
				return fmt.Errorf("failed to detach disk: %w", err)
			}
		}
	}
	if d.Initiator != "" {
		return m.dropInterface(ctx, d)
	}
	return nil
}

// iscsiadm has the program do something about what on says.
func (m Machine) iscsiadm(ctx context.Context, on []string, what ...string) (string, error) {
	return m.tool(ctx, "iscsiadm", slices.Concat(on, what)...)
}

// drop has it do away with that; what is not there needs not go.
func (m Machine) drop(ctx context.Context, on []string, what ...string) error {
	if _, err := m.iscsiadm(ctx, on, what...); err != nil && !absent(err) {
		return err
	}
	return nil
}
