# frozen_string_literal: true

# Blocks for growth checks, as Ruby source by name: those that leave nothing behind, whatever they fill at first, and
# those that leak at least one object or one block of malloc in every other iteration.
module GrowthBlocks
  # Blocks that must never fail a check. `n` counts the iterations.
  NULL = {
    nothing: "nil",
    garbage: "Array.new(50) { |i| \"garbage \#{i} \" * 10 }",
    memoization: "@total ||= Array.new(200) { |i| \"row \#{i}\" }",
    lazy_constant: "Lazy.const_defined?(:TABLE) || Lazy.const_set(:TABLE, Array.new(300) { |i| \"entry \#{i}\" })",
    autoload: "Autoloaded.size",
    autoload_in_the_second_round: "n > 150 && AutoloadedLater.size",
    string_dedup: "-\"key \#{n % 50}\"; JSON.parse('{\"name\": 1, \"other\": [1, 2, {\"name\": 3}]}')",
    symbols: "\"symbol_\#{n}\".to_sym",
    thread_local_cache: "(Thread.current[:cache] ||= {})[n % 40] ||= \"value \#{n}\"",
    cache_that_fills: "(@cache ||= {})[n] = \"value \#{n}\" * 5 if n <= 700",
    cache_that_evicts: "@recent ||= []; @recent << \"recent \#{n}\"; @recent.shift if @recent.size > 250",
    first_fifty: "(@first ||= []) << Object.new if n <= 50",
    logger: "@logger ||= Logger.new(File::NULL); @logger.info(\"line \#{n}\")",
    log_rotation: "(@rotating ||= Logger.new(File.join(DIRECTORY, \"rotating.log\"), 2, 2_000)).info(\"line \#{n}\")",
    tempfile: "Tempfile.create(\"growth\") { |file| file.write(\"x\" * 100) }",
    unclosed_tempfile: "Tempfile.new(\"growth\").write(\"x\")",
    finalizer: "ObjectSpace.define_finalizer(Object.new, FINALIZER)",
    weak_map: "(@weak ||= ObjectSpace::WeakMap.new)[Object.new] = Object.new",
    exception: "begin; raise KeyError, \"no \#{n}\"; rescue KeyError => e; e.backtrace; end",
    thread: "Thread.new { n.to_s }.value",
    fiber: "Fiber.new { Fiber.yield(n) }.resume; [1, 2, 3].each_entry.next",
    singleton: "object = Object.new; def object.answer = 42; object.answer; Class.new { def one = 1 }.new.one",
    evaluated: "eval(\"\#{n} + 1\")",
    closure: "-> { n }.call",
    regexp: "Regexp.new(\"a{\#{n % 7}}b\").match?(\"aab\")",
    string_io: "io = StringIO.new; io << \"text \" * 100; io.string.size",
    deflate: "Zlib::Inflate.inflate(Zlib::Deflate.deflate(\"x\" * 500))",
    digest: "Digest::SHA256.hexdigest(n.to_s)",
    time_and_numbers: "[Time.now.to_s, n ** 40, Rational(n, 7), Complex(n, 1)]",
    subprocess: "n % 100 == 1 && system(\"true\")",
    malloc_churn: "Leaks.leak(64, 3, :here); Leaks.free(3, :here)"
  }.freeze

  # What the blocks may use: libraries, files and classes.
  SETUP = <<~'RUBY'
    require "digest"
    require "json"
    require "logger"
    require "stringio"
    require "tempfile"
    require "tmpdir"
    require "zlib"
    DIRECTORY = Dir.mktmpdir
    at_exit { FileUtils.remove_entry(DIRECTORY) }
    %w[Autoloaded AutoloadedLater].each do |name|
      path = File.join(DIRECTORY, "#{name.downcase}.rb")
      File.write(path, "module #{name}; WORDS = %w[#{Array.new(300) { |i| "word#{i}" }.join(' ')}]; " \
                       "def self.size = WORDS.size; end")
      autoload name, path
    end
    module Lazy; end
    FINALIZER = proc {}
    class Order; def initialize(number) = @text = "order #{number} " * 10; end
    class Registry; @all = []; @by_number = {}; class << self; attr_reader :all, :by_number; end; end
    class Job; CALLBACKS = []; end
  RUBY

  # A leak: the source, the class that grows (nil: blocks of malloc), its growth per iteration, and its retainer.
  Leak = Struct.new(:source, :name, :per_iteration, :held_by, keyword_init: true)

  LEAKS = {
    class_level_array: Leak.new(source: "Registry.all << Order.new(n)", name: "Order", per_iteration: 1,
                                held_by: /\ARegistry @all → Array → Order\z/),
    three_at_a_time: Leak.new(source: "3.times { |i| Registry.all << [n, i] }", name: "Array", per_iteration: 3,
                              held_by: /\ARegistry @all → Array ×2\z/),
    hash_of_strings: Leak.new(source: "Registry.by_number[n] = \"number \#{n}\"", name: "String", per_iteration: 1,
                              held_by: /\ARegistry @by_number → Hash.* → String\z/),
    closure: Leak.new(source: "Job::CALLBACKS << proc { n }", name: "Proc", per_iteration: 1,
                      held_by: /\AJob::CALLBACKS → Array → Proc at .+:\d+\z/),
    thread_local: Leak.new(source: "(Thread.current[:seen] ||= []) << Object.new", name: "Object", per_iteration: 1,
                           held_by: /Thread.* → Array → Object\z/),
    finalizer: Leak.new(source: "ObjectSpace.define_finalizer(Registry, proc { n })", name: "Proc", per_iteration: 1,
                        held_by: /finalizers.* → Proc at .+:\d+\z/),
    evaluated_method: Leak.new(source: "Registry.class_eval(\"def m\#{n} = 1\")", name: "imemo_iseq", per_iteration: 1,
                               held_by: /\ARegistry → .*imemo_iseq\z/),
    deflater: Leak.new(source: "Registry.all << Zlib::Deflate.new", name: "Zlib::Deflate", per_iteration: 1,
                       held_by: /\ARegistry @all → Array → Zlib::Deflate\z/),
    block_of_malloc: Leak.new(source: "Leaks.leak(8, 1, :here)", per_iteration: 1),
    blocks_without_the_gvl: Leak.new(source: "Leaks.leak(64, 2, :without_gvl)", per_iteration: 2),
    every_other_iteration: Leak.new(source: "Registry.all << Order.new(n) if n.even?", name: "Order", per_iteration: 1,
                                    held_by: /\ARegistry @all → Array → Order\z/)
  }.freeze

  class << self
    # @param blocks [Hash{Symbol => String}] sources by name
    # @return [String] a script that defines BLOCKS, a lambda by each name
    def script(blocks)
      lambdas = blocks.map { |name, source| "#{name}: -> { n += 1; #{source} }" }
      "#{SETUP}\nn = 0\nBLOCKS = {\n#{lambdas.join(",\n")}\n}\n"
    end
  end
end
