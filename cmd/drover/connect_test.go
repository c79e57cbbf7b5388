package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
)

// authority signs certificates for a test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.key, a.cert = a.sign(name, &x509.Certificate{
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// sign makes the files <name>.pem and <name>.key.
func (a *authority) sign(name string, cert *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	cert.SerialNumber = big.NewInt(time.Now().UnixNano())
	cert.Subject = pkix.Name{CommonName: name}
	cert.NotBefore, cert.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = cert, key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	write(a.t, a.dir, name+".pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(a.t, a.dir, name+".key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return key, signed
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// serves makes a server require TLS, and a certificate of its clients.
func (a *authority) serves(o *server.Options) {
	a.sign("server", &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	pair, err := tls.LoadX509KeyPair(a.file("server.pem"), a.file("server.key"))
	if err != nil {
		a.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	o.TLSConfig = &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	}
	o.TLSTimeout = 10
}

// guarded starts a server whose fleet answers list, and gives its URL. own
// connects whoever answers.
func guarded(t *testing.T, change func(*server.Options), own ...nats.Option) string {
	t.Helper()
	s := natstest.New(t, natstest.Listen(), natstest.With(func(o *server.Options) {
		o.JetStream = false
		change(o)
	}))
	f := &fleet{url: s.URL(), nc: s.Connect(own...), asked: map[string]string{}, t: t}
	f.answers("list", drover.ListReply{Runs: []drover.Run{{ID: "r_secret", Status: drover.StatusRunning}}})
	return f.url
}

// asks lists the runs of a guarded fleet, which must be let in or refused with
// what an error says.
func asks(t *testing.T, url, refused string, flags ...string) {
	t.Helper()
	status, out, stderr := cli(t, "", append([]string{"list", "--nats", url}, flags...)...)
	if refused == "" {
		if status != 0 || !strings.Contains(out, "r_secret") {
			t.Errorf("%v: exit status %d, %q, %q", flags, status, out, stderr)
		}
		return
	}
	if status == 0 || out != "" || !strings.Contains(stderr, refused) {
		t.Errorf("%v: exit status %d, %q; standard error is %q, want %q", flags, status, out, stderr, refused)
	}
}

func TestConnectTLS(t *testing.T) {
	for _, first := range []bool{false, true} {
		ours, others := newAuthority(t, "ca"), newAuthority(t, "ca")
		for _, a := range []*authority{ours, others} {
			a.sign("client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		}
		own := []nats.Option{nats.RootCAs(ours.file("ca.pem")), nats.ClientCert(ours.file("client.pem"), ours.file("client.key"))}
		var more []string
		if first {
			own, more = append(own, nats.Secure(), nats.TLSHandshakeFirst()), []string{"--tls-first"}
		}
		url := guarded(t, func(o *server.Options) {
			ours.serves(o)
			o.TLSHandshakeFirst = first
		}, own...)
		flags := func(ca, pair *authority) []string {
			all := append([]string{"--tls-ca", ca.file("ca.pem")}, more...)
			if pair != nil {
				all = append(all, "--tls-cert", pair.file("client.pem"), "--tls-key", pair.file("client.key"))
			}
			return all
		}
		asks(t, url, "", flags(ours, ours)...)
		asks(t, url, "refuses this client", flags(others, ours)...)
		asks(t, url, "refuses this client", flags(ours, others)...)
		asks(t, url, "refuses this client", flags(ours, nil)...)
		asks(t, url, "--tls-ca cannot be read", "--tls-ca", ours.file("none.pem"))
		asks(t, url, "no pair of certificate and key", "--tls-cert", ours.file("client.pem"), "--tls-key", ours.file("ca.key"))
	}
}

func TestConnectIdentities(t *testing.T) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	seedFile := write(t, dir, "seed.nk", string(seed))
	noSeed := write(t, dir, "none.nk", "nothing")
	signed, resolve := operator(t)
	creds := write(t, dir, "user.creds", signed)
	seeded, err := nats.NkeyOptionFromSeed(seedFile)
	if err != nil {
		t.Fatal(err)
	}
	const no = "refuses this client: nats: Authorization Violation"

	t.Run("user and password", func(t *testing.T) {
		url := guarded(t, func(o *server.Options) {
			o.Users = []*server.User{{Username: "ada", Password: "s3cret"}}
		}, nats.UserInfo("ada", "s3cret"))
		asks(t, url, "", "--user", "ada", "--password", "s3cret")
		asks(t, url, no, "--user", "ada", "--password", "wrong")
		asks(t, url, no)
		asks(t, url, "--password is for a user", "--password", "s3cret")
		asks(t, url, "--user and --token are two identities", "--user", "ada", "--token", "x")
		t.Setenv("DROVER_USER", "ada")
		t.Setenv("DROVER_PASSWORD", "s3cret")
		asks(t, url, "")
		asks(t, url, no, "--password", "wrong")
	})
	t.Run("token", func(t *testing.T) {
		url := guarded(t, func(o *server.Options) { o.Authorization = "t0ken" }, nats.Token("t0ken"))
		asks(t, url, "", "--token", "t0ken")
		asks(t, url, no, "--token", "wrong")
		asks(t, strings.Replace(url, "://", "://t0ken@", 1), "")
		if status, _, stderr := cli(t, "", "list", "--nats", strings.Replace(url, "://", "://wr0ng@", 1)); status == 0 || strings.Contains(stderr, "wr0ng") {
			t.Errorf("exit status %d, and standard error shows the token: %q", status, stderr)
		}
	})
	t.Run("nkey", func(t *testing.T) {
		url := guarded(t, func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} }, seeded)
		asks(t, url, "", "--nkey", seedFile)
		asks(t, url, no)
		asks(t, url, "holds no seed", "--nkey", noSeed)
	})
	t.Run("credentials", func(t *testing.T) {
		url := guarded(t, resolve, nats.UserCredentials(creds))
		asks(t, url, "", "--creds", creds)
		asks(t, url, no)
		asks(t, url, "--creds cannot be read", "--creds", filepath.Join(dir, "none.creds"))
	})
}

// operator makes the credentials of a user, and a server know the account of it.
func operator(t *testing.T) (creds string, resolve func(*server.Options)) {
	t.Helper()
	keys := func(create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		pair, err := create()
		if err != nil {
			t.Fatal(err)
		}
		public, err := pair.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		return pair, public
	}
	must := func(token string, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	operatorKey, operatorID := keys(nkeys.CreateOperator)
	accountKey, accountID := keys(nkeys.CreateAccount)
	userKey, userID := keys(nkeys.CreateUser)
	op := jwt.NewOperatorClaims(operatorID)
	must(op.Encode(operatorKey))
	account := must(jwt.NewAccountClaims(accountID).Encode(operatorKey))
	user := must(jwt.NewUserClaims(userID).Encode(accountKey))
	seed, err := userKey.Seed()
	if err != nil {
		t.Fatal(err)
	}
	file, err := jwt.FormatUserConfig(user, seed)
	if err != nil {
		t.Fatal(err)
	}
	return string(file), func(o *server.Options) {
		resolver := &server.MemAccResolver{}
		if err := resolver.Store(accountID, account); err != nil {
			t.Error(err)
		}
		o.TrustedOperators, o.AccountResolver = []*jwt.OperatorClaims{op}, resolver
	}
}

func TestConnectContext(t *testing.T) {
	root := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", root)
	if err := os.MkdirAll(filepath.Join(root, "nats", "context"), 0o700); err != nil {
		t.Fatal(err)
	}
	keep := func(name, fields string) { write(t, filepath.Join(root, "nats", "context"), name+".json", fields) }
	ours := newAuthority(t, "ca")
	ours.sign("client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	permissions := &server.Permissions{Subscribe: &server.SubjectPermission{Allow: []string{"_ADA.>"}}}
	url := guarded(t, func(o *server.Options) {
		ours.serves(o)
		o.Users = []*server.User{
			{Username: "ada", Password: "s3cret", Permissions: permissions},
			{Username: "worker", Password: "w"},
		}
	}, nats.RootCAs(ours.file("ca.pem")), nats.ClientCert(ours.file("client.pem"), ours.file("client.key")), nats.UserInfo("worker", "w"))
	files := `"ca": "` + ours.file("ca.pem") + `", "cert": "` + ours.file("client.pem") + `", "key": "` + ours.file("client.key") + `"`
	keep("good", `{"description": "x", "url": "`+url+`", "user": "ada", "password": "s3cret", "inbox_prefix": "_ADA", `+files+`}`)
	keep("elsewhere", `{"url": "nats://127.0.0.1:1", "user": "ada", "password": "wrong", "inbox_prefix": "_ADA", `+files+`}`)
	keep("nsc", `{"nsc": "nsc://o/a/u"}`)
	keep("op", `{"user": "ada", "password": "op://vault/it"}`)
	keep("junk", `{"url": 7}`)

	list := func(refused string, flags ...string) {
		t.Helper()
		status, out, stderr := cli(t, "", append([]string{"list"}, flags...)...)
		if refused == "" && (status != 0 || !strings.Contains(out, "r_secret")) || refused != "" && (status == 0 || !strings.Contains(stderr, refused)) {
			t.Errorf("%v: exit status %d, %q, %q; want %q", flags, status, out, stderr, refused)
		}
	}
	list("", "--context", "good")
	list("", "--context", "elsewhere", "--nats", url, "--user", "ada", "--password", "s3cret")
	list("refuses this client", "--context", "elsewhere", "--nats", url)
	list("no NATS server answers at nats://127.0.0.1:1", "--context", "elsewhere")
	list(`--context "goood" is not there: there are elsewhere, good, junk, nsc, op`, "--context", "goood")
	list("it has a path in it", "--context", "../good")
	list("has nsc, which drover does not know", "--context", "nsc")
	list("refers to a secret by op://", "--context", "op")
	list("cannot be read", "--context", "junk")
	list("no context is selected", "--context", selectedContext)
	write(t, filepath.Join(root, "nats"), "context.txt", "good\n")
	list("", "--context", selectedContext)
	t.Setenv("DROVER_CONTEXT", "good")
	list("")
}

// A worker that the server refuses says so and ends: to try for ever would look
// like one that only waits for its server.
func TestRefusedForGood(t *testing.T) {
	url := guarded(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "ada", Password: "s3cret"}}
	}, nats.UserInfo("ada", "s3cret"))
	for _, args := range [][]string{{"serve"}, {"function", "f", "--nats", url, "--", "cat"}} {
		if args[0] == "serve" {
			args = append(args, "--nats", url)
		}
		if status, _, stderr := cli(t, "", args...); status != exitFailed || !strings.Contains(stderr, "refuses this client") {
			t.Errorf("%v: exit status %d, %q", args, status, stderr)
		}
	}
}
