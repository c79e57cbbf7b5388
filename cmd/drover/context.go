package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// selectedContext stands for the context that nats context select chose.
const selectedContext = "."

// natsContext is what the nats command keeps of a context, as far as it says
// how to connect. The names are those of its file.
type natsContext struct {
	URL         string `json:"url"`
	Token       string `json:"token"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Creds       string `json:"creds"`
	NKey        string `json:"nkey"`
	Cert        string `json:"cert"`
	Key         string `json:"key"`
	CA          string `json:"ca"`
	JWT         string `json:"user_jwt"`
	Seed        string `json:"user_seed"`
	InboxPrefix string `json:"inbox_prefix"`
	TLSFirst    bool   `json:"tls_first"`

	// What is refused rather than left out: the connection would be another one.
	NSC         string `json:"nsc"`
	SocksProxy  string `json:"socks_proxy"`
	Domain      string `json:"jetstream_domain"`
	APIPrefix   string `json:"jetstream_api_prefix"`
	WindowsCert string `json:"windows_cert_store"`
}

// identity is who the context connects as: the first of those that the nats
// command would take.
func (c *natsContext) identity() identity {
	switch {
	case c.User != "":
		return identity{user: c.User, password: c.Password}
	case c.Creds != "":
		return identity{creds: c.Creds}
	case c.NKey != "":
		return identity{nkey: c.NKey}
	case c.JWT != "":
		return identity{jwt: c.JWT, seed: c.Seed}
	}
	return identity{token: c.Token}
}

// loadContext reads a context of the nats command from where that keeps it:
// nats/context/<name>.json in $XDG_CONFIG_HOME, or else in ~/.config.
func loadContext(name string) (*natsContext, error) {
	root, err := contextRoot()
	if err != nil {
		return nil, err
	}
	if name == selectedContext {
		if name, err = chosen(root); err != nil {
			return nil, err
		}
	}
	if strings.ContainsAny(name, `/\`) || strings.Contains(name, "..") {
		return nil, usageError("--context %q is no name of a context: it has a path in it", name)
	}
	raw, err := os.ReadFile(filepath.Join(root, "context", name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usageError("--context %q is not there: %s", name, others(root))
	}
	if err != nil {
		return nil, usageError("--context %q cannot be read: %w", name, err)
	}
	c := &natsContext{}
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, usageError("--context %q cannot be read: %w", name, err)
	}
	if err := c.settle(); err != nil {
		return nil, usageError("--context %q %w", name, err)
	}
	return c, nil
}

// settle makes paths of files whole, and refuses what is not done here.
func (c *natsContext) settle() error {
	for _, bad := range []struct{ field, value string }{
		{"nsc", c.NSC},
		{"socks_proxy", c.SocksProxy},
		{"jetstream_domain", c.Domain},
		{"jetstream_api_prefix", c.APIPrefix},
		{"windows_cert_store", c.WindowsCert},
	} {
		if bad.value != "" {
			return errors.New("has " + bad.field + ", which drover does not know: take it out, or give the flags of the connection")
		}
	}
	home, _ := os.UserHomeDir()
	for _, file := range []*string{&c.Creds, &c.NKey, &c.Cert, &c.Key, &c.CA} {
		*file = strings.TrimPrefix(*file, "file://")
		if rest, ok := strings.CutPrefix(*file, "~/"); ok && home != "" {
			*file = filepath.Join(home, rest)
		}
	}
	for _, v := range []string{c.Token, c.Password, c.Creds, c.NKey, c.JWT, c.Seed, c.CA, c.Cert, c.Key} {
		for _, scheme := range []string{"op://", "nsc://", "env://", "data:"} {
			if strings.HasPrefix(v, scheme) {
				return errors.New("refers to a secret by " + scheme + ", which drover does not look up: give the flags of the connection")
			}
		}
	}
	if c.JWT != "" && c.Seed == "" {
		return errors.New("has user_jwt and no user_seed: a server cannot take it")
	}
	return nil
}

func contextRoot() (string, error) {
	if dir := os.Getenv("XDG_CONFIG_HOME"); dir != "" {
		return filepath.Join(dir, "nats"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", usageError("--context: there is no home folder: %w", err)
	}
	return filepath.Join(home, ".config", "nats"), nil
}

// chosen is the name of the context that is selected.
func chosen(root string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(root, "context.txt"))
	if name := strings.TrimSpace(string(raw)); err == nil && name != "" {
		return name, nil
	}
	return "", usageError("--context %s: no context is selected: choose one with nats context select, or name it", selectedContext)
}

// others says which contexts there are.
func others(root string) string {
	files, _ := filepath.Glob(filepath.Join(root, "context", "*.json"))
	if len(files) == 0 {
		return "there is none in " + filepath.Join(root, "context")
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(filepath.Base(file), ".json")
	}
	slices.Sort(files)
	return "there are " + strings.Join(files, ", ")
}
