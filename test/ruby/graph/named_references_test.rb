# frozen_string_literal: true

require_relative "../../test_helper"

# Follows each path that a graph shows through the graph's process: what a step says must be so, and ObjectSpace must
# know the reference too.
class NamedReferencesTest < MemscopeTest
  FOLLOWING = <<~RUBY
    require "objspace"
    BindsName = Module.instance_method(:name)
    def class_name(object) = BindsName.bind_call(Kernel.instance_method(:class).bind_call(object))

    MODULES = ObjectSpace.each_object(Module).to_h { |mod| [BindsName.bind_call(mod), mod] }

    Wrapper = ObjectSpace::InternalObjectWrapper

    def internal?(object) = Wrapper === object

    # Ruby itself hides some singleton classes.
    def called?(object, name)
      return object.inspect.gsub(/:0x\\h+/, "") == name if name.start_with?("#<Class:") && !internal?(object)
      return [object.type.to_s, "imemo", "#<Class:"].any? { |start| name.start_with?(start) } if internal?(object)
      class_name(object) == name ||
        name.end_with?("(anonymous subclass)") || name == "anonymous"
    end

    # From Ruby 4.0 on, an internal object may hold the variables.
    def references(object)
      found = ObjectSpace.reachable_objects_from(object) || []
      inner = found.grep(Wrapper).flat_map { |one| ObjectSpace.reachable_objects_from(one) || [] }
      [found, inner]
    end

    def named(object, step)
      by = step.by
      case step.edge
      when :constant then [object.const_get(by, false)]
      when :ivar then [object.instance_variable_get(by)]
      when :cvar then [object.class_variable_get(by)]
      when :index then [object.to_a[Integer(by)]]
      when :key then object.keys
      when :value then object.select { |key, _| by == class_name(key) }.values
      end
    end

    def step_from(objects, step)
      objects.flat_map do |object|
        direct, inner = references(object)
        wanted = internal?(object) || step.edge == :class ? nil : named(object, step)
        (direct + inner).select { |one| called?(one, step.name) && (wanted.nil? || wanted.any? { |it| it.equal?(one) }) }
      end
    end

    def follow(path)
      first, *steps = path.steps
      return true if steps.empty? || (first.name != "global_tbl" && !MODULES.key?(first.name))
      return true if first.name == "global_tbl" && steps.first.edge != :global
      objects = [first.name == "global_tbl" ? eval(steps.shift.by) : MODULES.fetch(first.name)]
      steps.each { |step| step.times.times { objects = step_from(objects, step); break if objects.empty? } }
      objects.any?
    end
  RUBY

  PLANTED = <<~'RUBY'
    module Bus; HANDLERS = { created: [proc { 1 }] }; SECRET = { "key" => ["v" * 50] }; private_constant :SECRET
      @state = { 1 => Object.new }; @@shared = ["c" * 50]; end
    Pair = Struct.new(:left, :right)
    class Holder; def initialize = (@pair = Pair.new(["l" * 50], { sym: "r" * 50 }); @text = (+"t" * 50)); ONE = new; end
    MARKED = +"marked"
    MARKED.instance_variable_set(:@note, ["n" * 50])
    IDENTITY = {}.compare_by_identity
    IDENTITY[Object.new] = ["i" * 50]
    LARGE = (1..100).to_h { |number| ["key #{number}", ["value #{number}" * 5]] }
    $global = { list: ["g" * 50] }
    $k = { list: ["k" * 50] }
    SHARED = Array.new(100) { |number| "shared #{number}" * 5 }
    PART = SHARED.drop(50)
  RUBY

  EXPECTED = ["Bus::HANDLERS → Hash {Symbol} → Array", "Bus::SECRET → Hash {String} → Array",
              "Bus @state → Hash {Integer} → Object", "Bus @@shared → Array",
              "Holder::ONE → Holder @pair → Pair [0] → Array",
              "MARKED → String @note → Array", "IDENTITY → Hash {Object} → Array",
              "$global → Hash {Symbol} → Array", "$k → Hash {Symbol} → Array"].freeze

  # How many paths to each target are followed; MEMSCOPE_PATHS=300 for all.
  FOLLOWED = Integer(ENV.fetch("MEMSCOPE_PATHS", "15"))

  def test_each_step_of_each_path_is_a_reference_that_ruby_reports
    found = child_json(<<~RUBY, requires: %w[json])
      #{PLANTED}
      #{FOLLOWING}
      targets = [nil, "String", "Array", "Hash", "Proc", "Object", "Pair", "Class"]
      found = targets.map { |target| Memscope.heap_graph(top: 300, paths_to: target).paths }
      paths = found.flatten
      wrong = found.flat_map { |some| some.first(#{FOLLOWED}) }.reject { |path| follow(path) }
      edges = paths.flat_map { |path| path.steps.map(&:edge) }.tally
      puts JSON.generate(wrong: wrong.map { |path| path.to_h }, paths: paths.map(&:to_s), edges: edges)
    RUBY

    assert_empty found["wrong"].first(3)
    assert_empty %w[constant ivar cvar global index value] - found["edges"].keys, found["edges"]
    assert_empty EXPECTED - found["paths"]
  end
end
