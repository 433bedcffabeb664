# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/profiles"
require "tmpdir"
require "zlib"

# The same totals as those of the profile, in Go's format.
class ProfilePprofTest < MemscopeTest
  MEBIBYTE = 1_048_576
  SEEDS = (1..5)

  def shop(**given) = Profiles.profile(Profiles.shop(**given))

  def random(seed, **given) = Profiles.profile(Profiles.random(seed, **given))

  def difference = random(2).growth_since(random(1))

  def gem!(name)
    skip ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE
    require name
  end

  def pprof(profile) = messages::Profile.decode(Zlib.gunzip(profile.to_pprof))

  def messages
    gem! "google/protobuf"
    require_relative "../support/profile_proto"
    ProfileProto
  end

  def label(message, sample, key)
    texts(message, sample.label.flat_map { |one| [one.key, one.str] }).each_slice(2).to_h[key]
  end

  def texts(message, indexes) = indexes.map { |index| message.string_table[index] }

  def test_pprof_sample_types
    full = pprof(random(1))

    assert_equal %w[alloc_objects alloc_space inuse_objects inuse_space], texts(full, full.sample_type.map(&:type))
    assert_equal %w[count bytes count bytes], texts(full, full.sample_type.map(&:unit))
    assert_equal ["inuse_space"], texts(full, [full.default_sample_type])
    assert_equal(%w[inuse_objects inuse_space], pprof(shop).then do |message|
      texts(message, message.sample_type.map(&:type))
    end)
  end

  def test_pprof_totals
    profile = random(4)
    message = pprof(profile)
    sums = message.sample.map { |sample| sample.value.to_a }.transpose.map(&:sum)

    assert_equal %i[allocated_objects allocated_bytes live_objects live_bytes].map { |name| profile.stacks.sum(&name) },
                 sums
    assert_equal profile.rate_bytes, message.period
    assert_equal profile.at, Time.at(0, message.time_nanos, :nanosecond)
    assert_in_delta profile.at - profile.started_at, message.duration_nanos / 1e9
    assert_equal "", message.string_table.first
  end

  # Profiles of two processes, each at its own rate.
  def unlike = { random(1) => 4096, random(2) => 524_288 }.map { |profile, rate| at_rate(profile, rate) }

  def at_rate(profile, rate) = Memscope::Profile.from_h(profile.to_h.merge(rate_bytes: rate))

  def merged(profiles)
    parts = profiles.each_with_index.map { |one, index| [one, { "worker" => index.to_s }] }
    Memscope::Profile::Pprof.new(parts).to_s
  end

  # The estimates of each profile keep their sums, whatever the other's rate is.
  def test_pprof_of_several_at_unlike_rates
    [unlike, unlike.reverse].each do |profiles|
      file = merged(profiles)
      message = messages::Profile.decode(Zlib.gunzip(file))
      rates = texts(message, message.comment).map { |text| text[/one sample.*/] }
      sums = message.sample.group_by { |one| label(message, one, "worker") }
                    .transform_values { |samples| samples.sum { |one| one.value.to_a.last } }

      assert_equal profiles.each_with_index.to_h { |one, index| [index.to_s, one.total_live_bytes] }, sums
      assert_equal 524_288, message.period
      assert_equal(profiles.map { |one| "one sample for each #{one.rate_bytes} bytes" }, rates)
    end
  end

  # pprof itself merges the files of both.
  def test_go_merges_profiles_of_unlike_rates_likewise
    theirs = %w[-raw -top].to_h { |way| [way, go(unlike.map(&:to_pprof), way, "-unit=B", "-nodefraction=0")] }
    ours = %w[-raw -top].to_h { |way| [way, go([merged(unlike)], way, "-unit=B", "-nodefraction=0")] }

    [theirs, ours].each do |said|
      assert_equal unlike.sum(&:total_live_bytes), said["-top"][/% of (\d+)B? total/, 1].to_i, said["-top"]
      assert_equal "524288", said["-raw"][/^Period: (\d+)$/, 1], said["-raw"][0, 400]
    end
  end

  def test_pprof_counts_by_what_called_malloc
    message = pprof(Profiles.profile(Profiles.body([[%i[malloc xmalloc string put main], 8]])))

    assert_equal ["rb_str_plus", "Cache#put", "<main>"], names(message, message.sample.first)
  end

  def test_pprof_labels
    message = pprof(Profiles.profile(Profiles.whole([], [Profiles.stack([], 1, 0, tag: "checkout", thread: "main")])))
    labels = message.sample.first.label.to_h { |label| texts(message, [label.key, label.str]) }

    assert_equal({ "tag" => "checkout", "thread" => "main", "generation" => "0" }, labels)
  end

  def test_pprof_is_the_same_at_any_time
    profile = shop
    file = profile.to_pprof
    sleep 1.1

    assert_equal file, profile.to_pprof
    assert_equal(difference.total_live_bytes, pprof(difference).sample.sum { |sample| sample.value.to_a.last })
  end

  # Every field, with numbers of every length: google-protobuf, which reads and rewrites the message, produces the same
  # bytes in another order.
  def test_pprof_is_what_google_protobuf_writes
    [shop, difference, *Array.new(5) { |seed| random(seed) }].each do |profile|
      file = Zlib.gunzip(profile.to_pprof)
      message = messages::Profile.decode(file)
      again = messages::Profile.encode(message)

      assert_equal message, messages::Profile.decode(again)
      assert_equal again.bytesize, file.bytesize
      assert_equal again.bytes.tally, file.bytes.tally
    end
  end

  def names(message, sample)
    lines = sample.location_id.map { |id| message.location[id - 1].line.first.function_id }
    texts(message, lines.map { |id| message.function[id - 1].name })
  end

  RUBY = "/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1"

  # The names of the frames that are kept: the first table of pprof counts by the innermost one.
  def trimmed(*frames)
    message = pprof(Profiles.profile(Profiles.whole(frames, [Profiles.stack([*frames.each_index], 1, 0)])))
    names(message, message.sample.first)
  end

  def native(name, library = RUBY) = Profiles.native(name, library)

  def test_wrappers_of_malloc_are_dropped_from_the_leaf
    line = Profiles.ruby("Cache#put", "/srv/app/cache.rb", 9)
    wrappers = [native("__libc_malloc", "/lib/x86_64-linux-gnu/libc.so.6"), native("libruby-3.1.so.3.1+0xd8483"),
                native("objspace_xmalloc0"), native("ruby_xmalloc2"), native("rb_gc_impl_malloc"),
                native("je_malloc", "/usr/lib/libjemalloc.so.2")]

    assert_equal %w[rb_str_plus Cache#put], trimmed(*wrappers, native("rb_str_plus"), line)
    assert_equal %w[Cache#put], trimmed(*wrappers, line)
  end

  # A reader looks for these functions.
  def test_functions_of_extensions_stay
    named = native("malloc_wrapper", "/srv/gems/fast-1.0/fast.so")
    stripped = native("fast.so+0x1a2b", "/srv/gems/fast-1.0/fast.so")

    assert_equal %w[malloc_wrapper rb_xmalloc], trimmed(named, native("rb_xmalloc"))
    assert_equal ["fast.so+0x1a2b"], trimmed(native("malloc", "/lib/libc.so.6"), stripped)
  end

  def test_a_stack_of_nothing_else_stays_as_it_is
    assert_equal %w[malloc], trimmed(native("malloc", "/lib/libc.so.6"))
    assert_empty trimmed
  end

  def test_pprof_needs_no_gem
    ran = ChildProcess.run("print [Profiles.profile(Profiles.shop).to_pprof].pack('m0')",
                           requires: %w[memscope support/profiles], ruby_args: %W[--disable=gems -I#{__dir__}/..])

    assert_predicate ran, :success?, ran.to_s
    written = messages::Profile.decode(Zlib.gunzip(ran.out.unpack1("m0")))

    assert_equal(shop.total_live_bytes, written.sample.sum { |sample| sample.value.to_a.last })
  end

  # `go tool pprof` of Debian's package golang-go, which merges several files into one.
  def go(files, *arguments)
    missing = ENV.fetch("PATH").split(":").none? { |directory| File.executable?(File.join(directory, "go")) }
    raise Minitest::Assertion, "no go, which CI must have" if missing && ENV["CI"]

    skip "no go: bin/packages golang-go" if missing
    Dir.mktmpdir do |directory|
      paths = files.each_with_index.map do |text, index|
        File.join(directory, "#{index}.pb.gz").tap { |path| File.binwrite(path, text) }
      end
      IO.popen({ "HOME" => Dir.tmpdir }, ["go", "tool", "pprof", *arguments, *paths], err: %i[child out], &:read)
    end
  end

  def go_of(profile, *arguments) = go([profile.to_pprof], *arguments)

  def test_go_opens_it_with_the_same_totals
    profile = random(5)
    { inuse_space: :live_bytes, inuse_objects: :live_objects, alloc_space: :allocated_bytes,
      alloc_objects: :allocated_objects }.each do |index, name|
      said = go_of(profile, "-top", "-unit=B", "-nodefraction=0", "-sample_index=#{index}")

      assert_equal profile.stacks.sum(&name), said[/% of (\d+)B? total/, 1].to_i, said
    end
  end

  def test_go_shows_lines_and_labels
    said = go_of(shop, "-top", "-lines", "-unit=B")

    assert_match(/Type: inuse_space\n/, said)
    assert_match(%r{^ +0 .* #{124 * MEBIBYTE}B .* <main> /srv/app/main\.rb:18$}, said)
    assert_match(%r{^ *#{92 * MEBIBYTE}B .* rb_str_plus /usr/lib/}, said)
    assert_match(/generation: Total 129\.0MB\n +91\.0MB \(70\.54%\): 0\n +38\.0MB \(29\.46%\): 1/, go_of(shop, "-tags"))
  end
end
