package up

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// unitName is the service of systemd that starts the server or agent with the machine.
const unitName = "kemudi.service"

// services are the services of this machine.
type services struct {
	dir string                                          // of the administrator's units
	ctl func(ctx context.Context, args ...string) error // systemctl; nil: systemd does not run
}

// machineServices are those of the machine that this process runs on.
func machineServices() services {
	s := services{dir: "/etc/systemd/system"}
	if info, err := os.Stat("/run/systemd/system"); err == nil && info.IsDir() { // as sd_booted(3) says
		s.ctl = systemctl
	}
	return s
}

func systemctl(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (s services) file() string { return filepath.Join(s.dir, unitName) }

// has says whether a service starts the server or agent with these directories.
func (s services) has(o Options) (bool, error) {
	data, err := os.ReadFile(s.file())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read service: %w", err)
	}
	return strings.Contains(string(data), unitDirs(o)), nil
}

// install makes the service, or changes it to the program and flags of o, and has
// it started with the machine. It does not start it now.
func (s services) install(ctx context.Context, o Options) error {
	if s.ctl == nil {
		return fmt.Errorf("systemd does not run on this machine, and --at-boot is a service of it; start kemudi %s in whatever way services start here", o.is)
	}
	if ours, err := s.has(o); err != nil {
		return err
	} else if _, err := os.Stat(s.file()); err == nil && !ours {
		return fmt.Errorf("%s is of a server with other directories; kemudi reset of those removes it", s.file())
	}
	if err := os.WriteFile(s.file(), []byte(unit(o, os.Environ())), 0o600); err != nil { // the environment may name secrets
		return fmt.Errorf("write service: %w", err)
	}
	if err := s.ctl(ctx, "daemon-reload"); err != nil {
		return err
	}
	return s.ctl(ctx, "enable", unitName)
}

// start starts the service and returns when the server or agent is ready.
func (s services) start(ctx context.Context, o Options, p *printer) error {
	if s.ctl == nil {
		return fmt.Errorf("%s is there, but systemd does not run on this machine", s.file())
	}
	if err := os.MkdirAll(o.DataDir, 0o700); err != nil { // for the log
		return fmt.Errorf("make data directory: %w", err)
	}
	before := int64(0)
	if info, err := os.Stat(LogFile(o.DataDir)); err == nil {
		before = info.Size()
	}
	p.note("systemd starts " + unitName + ", log " + LogFile(o.DataDir))
	limited, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("not ready after %s", startPatience))
	defer cancel()
	err := s.ctl(limited, "start", unitName)
	switch {
	case err == nil:
		p.step("the " + o.is + " is ready")
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted: %s goes on starting, systemctl stop %[1]s ends it: %w", unitName, context.Cause(ctx))
	case limited.Err() != nil:
		return fmt.Errorf("start %s: %w; %s goes on starting: see %s", o.is, late(limited, o.RunDir), unitName, LogFile(o.DataDir))
	}
	// Not again and again: whoever asked is here to be told.
	err = errors.Join(err, s.ctl(ctx, "stop", unitName))
	return fmt.Errorf("the %s ended while starting (%w):\n%s", o.is, err, tail(LogFile(o.DataDir), before))
}

// remove stops the service and removes it, and says whether there was one.
func (s services) remove(ctx context.Context, o Options) (bool, error) {
	ours, err := s.has(o)
	if err != nil || !ours {
		return false, err
	}
	if s.ctl != nil {
		if err := s.ctl(ctx, "disable", "--now", unitName); err != nil {
			return false, err
		}
	}
	if err := os.Remove(s.file()); err != nil {
		return false, fmt.Errorf("remove service: %w", err)
	}
	if s.ctl != nil {
		return true, s.ctl(ctx, "daemon-reload")
	}
	err = os.Remove(filepath.Join(s.dir, "multi-user.target.wants", unitName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return true, fmt.Errorf("remove service: %w", err)
	}
	return true, nil
}

// unit is the text of the service: what kemudi up does, by systemd. It is given
// the settings and the HTTP proxy of the environment. Stopping it leaves containers
// alone, as kemudi down does; what crashes is started again.
func unit(o Options, environ []string) string {
	var env strings.Builder
	environ = slices.Sorted(slices.Values(environ))
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if name == NotifyEnv || !strings.HasPrefix(name, "KEMUDI_") && !slices.Contains([]string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}, strings.ToUpper(name)) {
			continue
		}
		env.WriteString("Environment=" + unitQuoted(kv) + "\n")
	}
	command := unitQuoted(o.Program) + " " + o.is + " " + unitDirs(o)
	for _, a := range o.Args {
		command += " " + unitQuoted(strings.ReplaceAll(a, "$", "$$"))
	}
	log := strings.ReplaceAll(LogFile(o.DataDir), "%", "%%")
	return `# Written by kemudi up --at-boot; kemudi reset removes it.
[Unit]
Description=Kemudi, a Kubernetes in one program
Wants=network-online.target
After=network-online.target nftables.service firewalld.service ufw.service

[Service]
Type=notify
ExecStart=` + command + `
` + env.String() + `StandardOutput=append:` + log + `
StandardError=inherit
Restart=on-failure
RestartSec=5
TimeoutStartSec=` + fmt.Sprint(int(2*startPatience/time.Second)) + `
# Containers outlive it, and what has become of them is its own affair.
KillMode=process
Delegate=yes
TasksMax=infinity
LimitNOFILE=` + "1048576" + `
OOMScoreAdjust=-999

[Install]
WantedBy=multi-user.target
`
}

// unitDirs is how the command of a unit names the directories.
func unitDirs(o Options) string {
	return "--data-dir " + unitQuoted(o.DataDir) + " --run-dir " + unitQuoted(o.RunDir)
}

// unitQuoted is a word as systemd reads it back.
func unitQuoted(word string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "\n", `\n`).Replace(word) + `"`
}
