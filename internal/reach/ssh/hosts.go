package ssh

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// knownHosts is the file with the keys of the nodes' SSH servers, by the names of the
// nodes. It is read at each login: people may write to it.
type knownHosts string

// of are the keys that a node is known by.
func (k knownHosts) of(node string) (keys []ssh.PublicKey, _ error) {
	text, err := os.ReadFile(string(k))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the keys of the nodes' SSH servers: %w", err)
	}
	for len(bytes.TrimSpace(text)) > 0 {
		_, names, key, _, rest, err := ssh.ParseKnownHosts(text)
		if err != nil {
			return nil, fmt.Errorf("read the keys of the nodes' SSH servers: %s: %w; put back a copy of the file, or remove it: then the keys that are shown next are believed", k, err)
		}
		if slices.Contains(names, node) {
			keys = append(keys, key)
		}
		text = rest
	}
	return keys, nil
}

// algorithms are those of keys; nil: any.
func algorithms(keys []ssh.PublicKey) (list []string) {
	for _, key := range keys {
		if kind := key.Type(); kind == ssh.KeyAlgoRSA {
			list = append(list, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		} else {
			list = append(list, kind)
		}
	}
	return list
}

// check believes one of the keys that a node is known by, and the first one of a node that
// is not known.
func (k knownHosts) check(node string, known []ssh.PublicKey, shown ssh.PublicKey) error {
	if slices.ContainsFunc(known, func(key ssh.PublicKey) bool { return bytes.Equal(key.Marshal(), shown.Marshal()) }) {
		return nil
	}
	if len(known) > 0 {
		return fmt.Errorf("the SSH server of node %s shows another key than before, %s: if it was installed anew, remove the node's line from %s", node, ssh.FingerprintSHA256(shown), k)
	}
	f, err := os.OpenFile(string(k), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("note the key of the SSH server of node %s: %w", node, err)
	}
	_, err = f.WriteString(knownhosts.Line([]string{node}, shown) + "\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("note the key of the SSH server of node %s: %w", node, err)
	}
	return nil
}
