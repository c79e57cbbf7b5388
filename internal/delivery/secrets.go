package delivery

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/rs/zerolog"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/webhook"
)

const (
	lookEvery      = time.Second // at the file of the secrets, at most
	maxSecretsFile = 1 << 20     // bytes
)

// Secrets are the secrets that sign webhooks, by name, as a file says. It is
// looked at again when somebody asks, at most once a second: a change of it needs
// no restart. A file that cannot be read any more, or is broken, changes nothing,
// and is logged. No log and no error shows a secret. A nil *Secrets has none.
type Secrets struct {
	path string
	log  zerolog.Logger
	now  func() time.Time

	mu     sync.Mutex
	looked time.Time
	file   fs.FileInfo // as it was when it was last read; nil: it could not be
	failed string      // what was logged of it last
	byName map[string][][]byte
}

// OpenSecrets reads a file of secrets: YAML or JSON, a map of a name to one
// secret, or to a list of them with the latest first. A secret is whsec_ and the
// base64 of 24 to 64 bytes. The error has the code invalid_request where the file
// is not like that; one that cannot be read wraps what the system says.
func OpenSecrets(path string, logger zerolog.Logger) (*Secrets, error) {
	return openSecrets(path, logger, time.Now)
}

func openSecrets(path string, logger zerolog.Logger, now func() time.Time) (*Secrets, error) {
	s := &Secrets{path: path, log: logger, now: now, looked: now()}
	return s, s.read()
}

// Of gives the secrets of a name, the latest first; nil: there are none. They
// must not be changed.
func (s *Secrets) Of(name string) [][]byte {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); now.Sub(s.looked) >= lookEvery || now.Before(s.looked) {
		s.looked = now
		s.look()
	}
	return s.byName[name]
}

// look reads the file where it is another one than before.
func (s *Secrets) look() {
	info, err := os.Stat(s.path)
	if err == nil {
		if s.file != nil && os.SameFile(info, s.file) && info.Size() == s.file.Size() && info.ModTime().Equal(s.file.ModTime()) {
			return
		}
		err = s.read()
	} else {
		s.file = nil
	}
	switch {
	case err == nil:
		s.failed = ""
		s.log.Info().Str("file", s.path).Strs("names", slices.Sorted(maps.Keys(s.byName))).Msg("webhooks are signed with the secrets that the file has now")
	case err.Error() != s.failed:
		s.failed = err.Error()
		s.log.Error().Err(err).Msg("webhooks are signed with the secrets that were known before")
	}
}

// read reads the file. An error leaves the secrets as they were.
func (s *Secrets) read() error {
	s.file = nil
	f, err := os.Open(s.path)
	if err != nil {
		return fmt.Errorf("the file of the webhook secrets cannot be read: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("the file of the webhook secrets cannot be read: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSecretsFile+1))
	if err != nil {
		return fmt.Errorf("the file of the webhook secrets cannot be read: %w", err)
	}
	s.file = info // also where it is broken: it is read again when it changes
	byName, err := parseSecrets(text)
	if err != nil {
		return fmt.Errorf("webhook secrets in %s: %w", s.path, err)
	}
	s.byName = byName
	return nil
}

// parseSecrets reads what a file says. What the library says of a broken one is
// not passed on, for it shows the place.
func parseSecrets(text []byte) (map[string][][]byte, error) {
	if len(text) > maxSecretsFile {
		return nil, drover.Errorf(drover.CodeInvalidRequest, "the file has more than %d bytes", maxSecretsFile)
	}
	var parsed map[string]any
	if err := yaml.Unmarshal(text, &parsed); err != nil {
		where := ""
		if at, ok := errors.AsType[yaml.Error](err); ok && at.GetToken() != nil && at.GetToken().Position != nil {
			where = fmt.Sprintf(" at line %d", at.GetToken().Position.Line)
		}
		return nil, drover.Errorf(drover.CodeInvalidRequest, "the file is no YAML map%s: each line must be a name, which occurs once, and its secret, as in default: whsec_...", where)
	}
	byName := map[string][][]byte{}
	for name, value := range parsed {
		if webhook.Mistaken(name) || name == "" {
			return nil, drover.Errorf(drover.CodeInvalidRequest, "one of the names is empty or a secret: put the name first, as in default: whsec_...")
		}
		list, ok := value.([]any)
		if !ok {
			list = []any{value}
		}
		if len(list) == 0 {
			return nil, drover.Errorf(drover.CodeInvalidRequest, "%q has no secret: give it one, or remove the name", name)
		}
		for i, one := range list {
			text, _ := one.(string) // else it is none, and told as such
			secret, err := webhook.ParseSecret(text)
			if err != nil {
				return nil, fmt.Errorf("secret %d of %q: %w", i+1, name, err)
			}
			byName[name] = append(byName[name], secret)
		}
	}
	return byName, nil
}
