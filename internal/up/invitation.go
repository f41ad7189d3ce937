package up

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kemudi/kemudi/internal/join"
	"github.com/kemudi/kemudi/internal/wholefile"
)

// Invitation is the cluster that a machine is to join. It lies in the data directory until the machine has joined, so
// that whatever starts the server or agent in the end, systemd after a loss of power say, can go on with it; and so that no
// command line has the token.
type Invitation struct {
	Role    string   `json:"role"`    // server or agent
	Servers []string `json:"servers"` // addresses or URLs
	Token   string   `json:"token"`
}

func invitationFile(dataDir string) string { return filepath.Join(dataDir, "invitation.json") }

// Invited returns the invitation that a machine has to a role; nil: none.
func Invited(dataDir, role string) (*Invitation, error) {
	i, err := readInvitation(dataDir)
	if err != nil || i == nil || i.Role != role {
		return nil, err
	}
	return i, nil
}

func readInvitation(dataDir string) (*Invitation, error) {
	data, err := os.ReadFile(invitationFile(dataDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read invitation: %w", err)
	}
	var i Invitation
	if err := json.Unmarshal(data, &i); err != nil {
		return nil, fmt.Errorf("read invitation: %s: %w; remove the file, and join again", invitationFile(dataDir), err)
	}
	return &i, nil
}

// leave puts the invitation where the process will find it.
func (i *Invitation) leave(dataDir string) error {
	data, err := json.Marshal(i)
	if err != nil {
		return fmt.Errorf("leave invitation: %w", err)
	}
	return wholefile.Private(invitationFile(dataDir), data)
}

// DropInvitation forgets the invitation of a machine, which has joined, or which nobody wants to join any more.
func DropInvitation(dataDir string) error {
	if err := os.Remove(invitationFile(dataDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("drop invitation: %w", err)
	}
	return nil
}

// RoleOf is what a machine is by its data directory, or is invited to be: server or agent; empty: nothing yet.
func RoleOf(dataDir string) (string, error) {
	if _, err := os.Stat(filepath.Join(dataDir, "pki")); err == nil {
		return RoleServer, nil
	}
	_, err := join.ReadMember(filepath.Join(dataDir, "identity"))
	if err == nil {
		return RoleAgent, nil
	}
	if !errors.Is(err, join.ErrNoMember) {
		return "", err
	}
	i, err := readInvitation(dataDir)
	if err != nil || i == nil {
		return "", err
	}
	return i.Role, nil
}

// role is what the machine is to be.
func (o Options) role() (string, error) {
	is, err := RoleOf(o.DataDir)
	switch {
	case err != nil:
		return "", err
	case o.Invitation != nil && (is == "" || is == o.Invitation.Role):
		return o.Invitation.Role, nil
	case o.Invitation != nil:
		return "", fmt.Errorf("%s has the data of another %s, and this machine is to join as %s: kemudi reset removes it; or name another directory (--data-dir, --run-dir)", o.DataDir, is, o.Invitation.Role)
	case is == "":
		return RoleServer, nil
	}
	return is, nil
}
