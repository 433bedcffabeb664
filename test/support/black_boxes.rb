# frozen_string_literal: true

require "fileutils"
require "json"
require "tmpdir"
require_relative "bodies"
require_relative "histories"

# Black boxes as the recorder writes them, planted as what Native.read_black_box returns of files that only have names.
module BlackBoxes
  MEBIBYTE = 1_048_576
  CURRENT = Memscope::ProcessIdentity.current
  # In milliseconds.
  NOW = (Time.now.to_f * 1000).to_i / 1000 * 1000

  # Fields with times.
  TIMES = %i[at since began_at].freeze

  # Answers as Native, for these files.
  Source = Struct.new(:bodies) do
    def read_black_box(path) = bodies.fetch(File.basename(path), :not_found)
  end

  module_function

  # @param seen [Integer] milliseconds since 1970
  # @param slots [Hash] replaced, or left out (nil)
  # @return [Hash] of a worker that has been killed
  def body(pid: 4_194_000, seen: NOW - 60_000, history: nil, identity: {}, **slots)
    memory = { rss_bytes: 480 * MEBIBYTE, at: seen }
    all = { identity: identity(pid, **identity), limit: limit, memory: memory, **slots }
    texts = all.compact.transform_values do |slot|
      { at: seen, text: slot.is_a?(String) ? slot : JSON.generate(timed(slot)) }
    end
    { written_at: seen, slots: texts, history: history }
  end

  # With times as in JSON.
  def timed(value)
    case value
    when Array then value.map { |item| timed(item) }
    when Hash
      value.to_h do |key, item|
        time = TIMES.include?(key) && item.is_a?(Integer) && item.bit_length < 48
        [key, time ? Memscope::Clock.text(item) : timed(item)]
      end
    else value
    end
  end

  def identity(pid, **given)
    { pid: pid, boot_id: CURRENT.boot_id, pid_namespace: CURRENT.pid_namespace, started: 17, parent: 1,
      role: "puma worker 2", service: "/srv/shop puma worker", release: "4f2c", ruby: "3.1.2", memscope: "0.1.0",
      hostname: "web-1", command: "puma", limit_bytes: 512 * MEBIBYTE, directory: nil, oom_kills: 3,
      began_at: NOW - 7_200_000, index: 2, **given }
  end

  def limit(**given)
    { oom_kills: 3, limit_bytes: 512 * MEBIBYTE, working_set_bytes: 510 * MEBIBYTE, headroom_bytes: 2 * MEBIBYTE,
      pressure_full_avg10: 12.5, directory: nil, **given }
  end

  # All that a box can have.
  def slots
    at = NOW - 70_000
    { ledger: { **Memscope::Ledger.capture(Bodies.ledger).to_h, at: NOW - 60_000 },
      findings: [{ id: "leak", severity: "critical", title: "Leak of native memory" }],
      census: { at: at, objects: 90_000, classes: [{ name: "Order", objects: 4000, bytes: 9 * MEBIBYTE }] },
      heap: { at: at, retainers: [{ name: "Hash", objects: 4000, bytes: 12 * MEBIBYTE,
                                    path: ["(vm)", "Hash at app.rb:3"] }] },
      lines: { at: at, objects: nil, malloc: [{ line: "app/models/order.rb:12", method_name: "Order#total",
                                                live_bytes: 130 * MEBIBYTE }] },
      tags: { at: at, runs: [{ tag: "orders#index", thread: "puma srv tp 001", since: NOW - 64_000 }] },
      threads: { count: 2, names: [{ name: nil, status: "run" }, { name: "puma srv tp 001", status: "sleep" }] },
      approach: { at: at, why: "headroom", evidence: "lines" } }
  end

  # A cgroup's directory with this count of OOM kills.
  def cgroup(kills)
    Dir.mktmpdir.tap { |path| File.write(File.join(path, "memory.events"), "low 0\noom 4\noom_kill #{kills}\n") }
  end

  # @param bodies [Hash{String => Hash}] by the names of files
  # @yieldparam directory [String]
  # @yieldparam source [Source]
  def planted(bodies)
    Dir.mktmpdir do |directory|
      bodies.each_key { |name| FileUtils.touch(File.join(directory, name)) }
      yield directory, Source.new(bodies)
    end
  end

  # @return [Memscope::Postmortem] of the one box, or of the first of several
  def postmortem(first = body, *others)
    boxes = [first, *others].map.with_index { |body, index| Memscope::Postmortem::Box.new("/boxes/#{index}.box", body) }
    Memscope::Postmortem.of(boxes.first, others: boxes)
  end
end
