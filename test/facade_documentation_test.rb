# frozen_string_literal: true

require_relative "test_helper"

# The documentation and the signatures match the code.
class FacadeDocumentationTest < MemscopeTest
  SOURCE = File.read(File.join(ChildProcess::ROOT, "lib/memscope/setup/facade.rb"))
  SIGNATURES = Dir[File.join(ChildProcess::ROOT, "sig/*.rbs")].map { |path| File.read(path) }.join
  TIERS = <<~RUBY
    tiers = ARGV.to_h do |call|
      [call, call == "purge" ? Memscope.purge(dry_run: true) : Memscope.public_send(call)]
    end
    puts JSON.generate(tiers.transform_values { |reading| reading.cost.tier })
  RUBY
  # Methods that return no reading; report costs as much as ledger.
  NO_READING = %w[rss listen report configure configuration supported? unsupported_reason
                  malloc_profile object_profile measure tag eager_load! dump postmortem].freeze
  # Constants for commands, pages and other surfaces, not for callers.
  SURFACES = %i[CLI Launch Pprof Report Speedscope Tasks Web].freeze
  # Methods that declare and build a Record, which only memscope itself calls.
  DECLARING = %i[fields field declare declared together capture load own_fields counters body_names envelope].freeze

  # The comment above each public method of Memscope, by name.
  def comments
    facade = SOURCE[/^  class << self\n(.*?)^  end$/m, 1]
    facade.scan(/((?:^    #.*\n)+)^    def (\w+[?!]?)/).to_h { |comment, name| [name, comment.gsub(/\n *#/, "")] }
  end

  # In "Tier T1 under jemalloc, …: …. T2 under glibc, …", the tier under this allocator; otherwise the only one stated.
  def stated(comment, allocator) = comment[/(T\d) under #{allocator}/, 1] || comment[/Tier (T\d)/, 1]

  { glibc: nil, jemalloc: ChildProcess::ALLOCATORS[:jemalloc] }.each do |allocator, preload|
    define_method("test_the_tiers_that_are_stated_under_#{allocator}") do
      skip_under_sanitizer
      documented = comments.except(*NO_READING)
      found = child_json("ARGV.replace(#{documented.keys.inspect})\n#{TIERS}", preload: preload, requires: ["json"])

      assert_operator documented.size, :>=, 14
      assert_equal(documented.transform_values { |comment| stated(comment, allocator) }, found)
    end
  end

  def test_the_other_tiers_that_are_stated
    assert_match(/T2 with `malloc`/, comments["snapshot"])
    assert_equal :T2, Memscope.snapshot(malloc: true).cost.tier
    assert_match(/Tier T2/, comments["report"])
  end

  # The checks of rbs itself do not report a missing signature.
  def test_each_public_method_has_a_signature
    missing = undeclared(Memscope, block(SIGNATURES, "Memscope", 0), 1)

    assert_empty missing
    assert_includes undeclared(Memscope, SIGNATURES.sub("def forks?:", "def forked:"), 1),
                    "Memscope::HostEnvironment#forks?"
  end

  private

  # All blocks of that name: several files may declare parts of one module.
  def block(text, name, depth)
    blocks = text.scan(/^#{'  ' * depth}(?:class|module) #{name}\b.*?^#{'  ' * depth}end$/m)
    blocks.join("\n") unless blocks.empty?
  end

  # The names of methods without a signature in the block of their module, including those of nested modules.
  def undeclared(container, signatures, depth)
    parts = (container.constants(false) - SURFACES).sort.map { |name| container.const_get(name) }.grep(Module)
    parts.select { |part| part.name&.start_with?("#{container.name}::") && !internal?(part) }.flat_map do |part|
      declared = block(signatures, part.name.split("::").last, depth)
      declared ? methods_without(part, declared) + undeclared(part, declared, depth + 1) : [part.name]
    end
  end

  def methods_without(part, declared)
    above = part.is_a?(Class) ? part.superclass : Module.new
    own = part.public_instance_methods(false).reject { |name| above.method_defined?(name) }
    class_own = part.singleton_methods(false).reject { |name| above.respond_to?(name) }
    methods = (own - DECLARING).map { |name| ["#", part.public_instance_method(name)] } +
              (class_own - DECLARING).map { |name| [".", part.method(name)] }
    methods.reject { |sign, method| declares?(declared, sign, method.name) || internal_at?(*method.source_location) }
           .map { |sign, method| "#{part.name}#{sign}#{method.name}" }
  end

  def declares?(text, sign, name)
    name = Regexp.escape(name.to_s)
    text.match?(sign == "#" ? /(attr_reader|def|alias) #{name}[: ]/ : /def self\.#{name}: /)
  end

  # Ruby may give a line after the one with the name.
  def internal?(part)
    file, line = Object.const_source_location(part.name)
    return false unless file

    opening = /\b(?:class|module) #{part.name.split('::').last}\b/
    internal_at?(file, 1 + (File.readlines(file).first(line).rindex { |text| text.match?(opening) } || (line - 1)))
  end

  # Whether the comment above says that it is memscope's own (@api private). Methods defined in C have no file.
  def internal_at?(file = nil, line = nil)
    return false unless file

    above = File.readlines(file).first(line - 1).reverse.take_while { |text| text.match?(/\A\s*#/) }
    above.any? { |text| text.include?("@api private") }
  end
end
