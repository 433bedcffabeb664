# frozen_string_literal: true

require "rbconfig"
require_relative "bodies"

# Bodies of malloc profiles, in the shape that the extension builds.
module Profiles
  MEBIBYTE = 1_048_576
  GEMS = "/usr/lib/ruby/gems/3.1.0/gems"

  module_function

  def frame(kind, name, **given) = { kind: kind, name: name, path: nil, lineno: nil, library: nil, **given }

  def ruby(name, path, lineno) = frame(:ruby, name, path: path, lineno: lineno)

  def native(name, library) = frame(:native, name, library: library)

  FRAMES = {
    string: native("rb_str_plus", "/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1"),
    xmalloc: native("ruby_xmalloc2", "/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1"),
    plus: frame(:ruby, "String#+"),
    put: ruby("Cache#put", "/srv/app/models/cache.rb", 9),
    block: ruby("block in Cache#put", "/srv/app/models/cache.rb", 9),
    main: ruby("<main>", "/srv/app/main.rb", 18),
    deflate: native("deflateInit2_", "/lib/x86_64-linux-gnu/libz.so.1"),
    zlib: native("rb_deflate_initialize", "#{RbConfig::CONFIG['rubyarchdir']}/zlib.so"),
    malloc: native("malloc", "/lib/x86_64-linux-gnu/libc.so.6"),
    parse: ruby("Nokogiri::XML.parse", "#{GEMS}/nokogiri-1.15.4-x86_64-linux/lib/nokogiri/xml.rb", 33),
    tree: native("xmlNewNode", "#{GEMS}/nokogiri-1.15.4-x86_64-linux/lib/nokogiri/nokogiri.so"),
    rails: ruby("ActiveRecord::Base.find", "/srv/bundler/gems/rails-0123456789ab/activerecord/base.rb", 1),
    set: ruby("Set#add", "#{RbConfig::CONFIG['rubylibdir']}/set.rb", 400),
    tap: ruby("Kernel#tap", "<internal:kernel>", 90),
    thread: ruby("block in Puma::ThreadPool#spawn_thread", "#{GEMS}/puma-6.6.1/lib/puma/thread_pool.rb", 155),
    each: frame(:ruby, "Array#each"),
    head: ruby("Rack::Head#call", "#{GEMS}/rack-3.1.8/lib/rack/head.rb", 15),
    callback: ruby("AbstractController::Callbacks#process_action", "#{GEMS}/actionpack-7.2.3/lib/callbacks.rb", 120),
    no_gvl: frame(:state, "[no GVL]"),
    no_room: frame(:state, "[no room]"),
    unnamed: native("libpq.so.5+0x1a2b", "/usr/lib/libpq.so.5")
  }.freeze

  OWN = ruby("Profile.capture", File.expand_path("../../lib/memscope/profile/profile.rb", __dir__), 175).freeze

  # A body with stacks, each given as [names of FRAMES, leaf first; MiB; generation; other fields].
  def body(stacks, **given)
    names = stacks.flat_map(&:first).uniq
    stacks = stacks.map do |frames, mebibytes, generation = 0, more = {}|
      stack(frames.map { |name| names.index(name) }, mebibytes * MEBIBYTE, generation, **more)
    end
    whole(names.map { |name| FRAMES.fetch(name) }, stacks, **given)
  end

  # A profile of objects with these samples at Cache#put, at <main>, in memscope's own file, and at Set#add; each stands
  # for 1000 objects of 40 bytes.
  def objects(*samples)
    stacks = samples.map.with_index do |number, index|
      stack([index], 40_000 * number, 0, samples: number, class_name: "Order", live_objects: 1000 * number,
                                         error_objects: 1, shares: [[1, 1_000_000, 1000 * number, 40_000 * number]])
    end
    frames = [*FRAMES.values_at(:put, :main), OWN, FRAMES.fetch(:set)].first(samples.size)
    Memscope::Profile.capture(whole(frames, stacks, backend: :objects, rate_bytes: nil, windows: 20, coverage: nil,
                                                    allocations: 20_000_000, equal_windows: 20.0,
                                                    windows_share: 0.02,
                                                    live_objects: stacks.sum { |stack| stack[:live_objects] }))
  end

  def stack(frames, bytes, generation, **given)
    samples = (bytes / 524_288.0).ceil
    { frames: frames, tag: nil, thread: nil, generation: generation, live_bytes: bytes, live_objects: bytes / 64,
      samples: samples, error_bytes: samples.zero? ? 0 : (bytes / Math.sqrt(samples)).to_i, allocated_bytes: nil,
      allocated_objects: nil, freed_bytes: nil, freed_objects: nil, **given }
  end

  def whole(frames, stacks, **given)
    { backend: :imports, rate_bytes: 524_288, running: true,
      started_at: Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond) - 60_000,
      generation: stacks.map { |stack| stack[:generation] }.max || 0, frames: frames, stacks: stacks,
      live_bytes: stacks.sum { |stack| stack[:live_bytes] }, samples: stacks.sum { |stack| stack[:samples] },
      error_bytes: Integer.sqrt(stacks.sum { |stack| stack[:error_bytes]**2 }), allocator_live_bytes: 300 * MEBIBYTE,
      coverage: 0.97, overhead: overhead, reasons: {}, cost: Bodies.cost, **given }
  end

  def overhead(**given)
    { samples_taken: 1234, nanoseconds: 18_000_000, table_bytes: MEBIBYTE, dropped_samples: 0, lost_frees: 0,
      inflated_bytes: nil, patched_imports: 28, patched_objects: 22, **given }
  end

  # A leak in the cache, and other stacks around it.
  def shop(**given)
    body([[%i[string plus put main], 60, 0], [%i[string plus block put main], 30, 1, { tag: "checkout" }],
          [%i[malloc deflate zlib put main], 29, 0, { thread: "puma 1" }], [%i[deflate no_gvl], 5, 1],
          [%i[tree parse main], 3, 1], [%i[string tap set main], 2, 0]], **given)
  end

  # Random stacks of all kinds, as many as in real programs. The same seed gives the same stacks.
  def random(seed, allocations: true, stacks: 60, names: FRAMES.keys)
    dice = Random.new(seed)
    made = Array.new(stacks) do
      stack(Array.new(dice.rand(0..12)) { dice.rand(names.size) }, 0, dice.rand(4)).merge(numbers(dice, allocations))
    end
    whole(names.map { |name| FRAMES.fetch(name) }, made)
  end

  def numbers(dice, allocations)
    allocated = dice.rand(1..(1 << 28))
    live = dice.rand(4).zero? ? 0 : dice.rand(allocated)
    counted = { allocated_bytes: allocated, allocated_objects: 1 + (allocated / 64), freed_bytes: allocated - live,
                freed_objects: (allocated - live) / 64 }
    stack([], live, 0).slice(:live_bytes, :live_objects, :samples, :error_bytes)
                      .merge(tag: [nil, "a;b", "é"].sample(random: dice), **(allocations ? counted : {}),
                             thread: [nil, "main", "worker\n1"].sample(random: dice))
  end

  def profile(body, **envelope)
    Memscope::Profile.capture(body, envelope.empty? ? nil : { memscope: "0.1.0", ruby: "3.1.2", pid: 4711,
                                                              at: 1_795_270_300_039, **envelope })
  end
end
