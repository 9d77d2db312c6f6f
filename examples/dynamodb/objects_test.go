//go:build unix

package dynamodb_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	aws_dynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/examples/dynamodb"
	"github.com/holdfast-go/holdfast/internal/servertest"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/observed"
	"github.com/holdfast-go/holdfast/store/storetest"
)

// dynalite is a server that speaks DynamoDB's protocol, of npm: npm install --prefix DIR dynalite. The
// tests look for it under DIR, which is HOLDFAST_DYNALITE, or holdfast/dynalite in the user's cache.
func dynalite() (modules string, err error) {
	dir := os.Getenv("HOLDFAST_DYNALITE")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(cache, "holdfast", "dynalite")
	}
	modules = filepath.Join(dir, "node_modules")
	_, err = os.Stat(filepath.Join(modules, "dynalite"))
	_, missing := exec.LookPath("node")
	return modules, errors.Join(err, missing)
}

// program runs it on a free port. Its own program ends when a client cancels a request, and takes port 0
// for 4567.
const program = `process.on("uncaughtException", e => { if (e.code != "ECONNRESET") throw e });
require("dynalite")({createTableMs: 0}).listen(0, "127.0.0.1", function () {
	console.log("listening at: http://127.0.0.1:" + this.address().port) })`

var listens = regexp.MustCompile(`listening at: (http://\S+)`)

// connect starts a server for a test and returns a client of it.
func connect(t *testing.T) *aws_dynamodb.Client {
	servertest.Skip(t, "examples/dynamodb", "dynalite", "HOLDFAST_SKIP_DYNALITE", func() error { _, err := dynalite(); return err })
	modules, err := dynalite()
	require.NoError(t, err)
	cmd := exec.Command("node", "-e", program)
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
	p := &servertest.Program{Kit: "examples/dynamodb", Name: "dynalite", Log: filepath.Join(t.TempDir(), "log"),
		Tail: func(log string) string { return log }}
	require.NoError(t, p.Start(cmd))
	servertest.Attend(t, p.Close, func() []*servertest.Program { return []*servertest.Program{p} })
	url := ""
	require.NoError(t, p.Await(t.Context(), 10*time.Millisecond, func(context.Context) error {
		log, err := os.ReadFile(p.Log)
		if m := listens.FindSubmatch(log); m != nil {
			url = string(m[1])
			return nil
		}
		return fmt.Errorf("it does not listen yet: %w", err)
	}))
	return aws_dynamodb.New(aws_dynamodb.Options{Region: "local", BaseEndpoint: &url,
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", "")})
}

// table makes a table.
func table(tb storetest.TB, client *aws_dynamodb.Client, name string) *dynamodb.Objects {
	key := func(name string, kind types.KeyType) types.KeySchemaElement {
		return types.KeySchemaElement{AttributeName: &name, KeyType: kind}
	}
	attribute := func(name string) types.AttributeDefinition {
		return types.AttributeDefinition{AttributeName: &name, AttributeType: types.ScalarAttributeTypeS}
	}
	_, err := client.CreateTable(tb.Context(), &aws_dynamodb.CreateTableInput{TableName: &name,
		BillingMode: types.BillingModePayPerRequest, KeySchema: []types.KeySchemaElement{key("part", types.KeyTypeHash), key("key", types.KeyTypeRange)},
		AttributeDefinitions: []types.AttributeDefinition{attribute("part"), attribute("key")}})
	require.NoError(tb, err)
	for {
		is, err := client.DescribeTable(tb.Context(), &aws_dynamodb.DescribeTableInput{TableName: &name})
		require.NoError(tb, err)
		if is.Table.TableStatus == types.TableStatusActive {
			break
		}
		time.Sleep(time.Millisecond)
	}
	objects, err := dynamodb.New(client, name)
	require.NoError(tb, err)
	return objects
}

// The whole kit takes a minute of a server that is no quick one.
func TestConformance(t *testing.T) {
	tier.NightlyOnly(t, "TestALeasePassesFromKeeperToKeeper")
	client := connect(t)
	var mu sync.Mutex
	tables := 0
	storetest.Run(t, func(tb storetest.TB) func() store.Store {
		mu.Lock()
		tables++
		name := fmt.Sprint("leases-", tables)
		mu.Unlock()
		objects := table(tb, client, name)
		return func() store.Store {
			s, err := observed.New(objects)
			require.NoError(tb, err)
			return s
		}
	}, storetest.Observed(), storetest.TTL(time.Second), storetest.ExpirySlack(2*time.Second))
}

func TestALeasePassesFromKeeperToKeeper(t *testing.T) {
	objects := table(t, connect(t), "leases")
	var leases []*lease.Handle
	for _, id := range []string{"a", "b"} {
		s, err := observed.New(objects)
		require.NoError(t, err)
		k, err := lease.NewKeeper(s, lease.Config{ID: id})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, k.Close(context.Background())) })
		l, err := k.Lease("job")
		require.NoError(t, err)
		leases = append(leases, l)
	}
	first, err := leases[0].AcquireTerm(t.Context())
	require.NoError(t, err)
	_, err = leases[1].AcquireTerm(t.Context())
	require.ErrorIs(t, err, lease.ErrHeld)
	require.ErrorContains(t, err, "by a ")
	require.NoError(t, leases[0].Release(t.Context()))
	next, err := leases[1].AcquireTerm(t.Context())
	require.NoError(t, err)
	require.Greater(t, next.Token(), first.Token())
	require.NoError(t, leases[1].Release(t.Context()))
}

// A condition that does not hold is a sure refusal, and nothing else is.
func TestWhatIsSurelyRefused(t *testing.T) {
	client, ctx := connect(t), t.Context()
	o := table(t, client, "leases")
	v1, ok, err := o.Put(ctx, "a", []byte("1"), "")
	require.True(t, ok && err == nil)
	_, ok, err = o.Put(ctx, "a", []byte("2"), "")
	require.True(t, !ok && err == nil)
	v2, ok, err := o.Put(ctx, "a", []byte("1"), v1)
	require.True(t, ok && err == nil)
	require.NotEqual(t, v1, v2)
	ok, err = o.Delete(ctx, "a", v1)
	require.True(t, !ok && err == nil)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	ok, err = o.Delete(canceled, "a", v2)
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, ok)
	other, err := dynamodb.New(client, "none")
	require.NoError(t, err)
	_, _, err = other.Get(ctx, "a")
	require.ErrorIs(t, err, store.ErrDenied)
	require.ErrorContains(t, err, "ResourceNotFoundException")
	_, err = dynamodb.New(nil, "leases")
	require.ErrorIs(t, err, store.ErrInvalid)
	// A client that retries would take the second answer to one write for another's doing.
	lossy := aws_dynamodb.New(client.Options(), func(o *aws_dynamodb.Options) { o.HTTPClient = &forgetful{inner: o.HTTPClient} })
	lost, err := dynamodb.New(lossy, "leases")
	require.NoError(t, err)
	_, _, err = lost.Put(ctx, "b", []byte("1"), "")
	require.Error(t, err, "it was applied, and that is not known")
	is, ok, err := o.Get(ctx, "b")
	require.True(t, ok && err == nil && string(is.Value) == "1")
}

// forgetful loses the first answer.
type forgetful struct {
	inner aws_dynamodb.HTTPClient
	lost  bool
}

func (f *forgetful) Do(r *http.Request) (*http.Response, error) {
	answer, err := f.inner.Do(r)
	if err == nil && !f.lost {
		f.lost = true
		_ = answer.Body.Close()
		return nil, io.ErrUnexpectedEOF
	}
	return answer, err
}
